"""Writes the inputs that the fuzz targets start from, OUT/<target>/<number>: make_seeds.py OUT

They are also replayed by the ordinary tests, so an input that once broke a target belongs here. Those below were written by
hand; corpus/<target>.txt has what fuzzing found to reach more of the code, one Python bytes literal a line:
  make_seeds.py --corpus TARGET FOLDER    makes that file of a folder of inputs, smallest first, up to 24 kB of them
"""

import ast
import json
import pathlib
import struct
import sys


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def shard(magic, version, count, body):
    return struct.pack("<256i", magic, version, count, *[0] * 253) + body


def added_token(content, number, **flags):
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"content": content, "id": number, **{name: flags.get(name, False) for name in names}}


def tokenizer_patch(**members):
    """Changes to the good file of fuzz_tokenizer_json.cpp: 256 bytes, ab = 256, <end> = 257."""
    return json.dumps(members, ensure_ascii=False).encode()


def page(**members):
    """The smallest document of a report page, with some members replaced or added."""
    small = {"kind": "compare", "title": "t", "summary": [], "optimizers": [{"id": "a", "label": "A"}], "runs": []}
    return json.dumps({**small, **members}).encode()


SEEDS = {
    "safetensors": [
        b"",
        struct.pack("<Q", 2**64 - 1) + b"{}",
        safetensors({}),
        safetensors(b"{}\0\0"),
        safetensors(b'{"a":' + b"[" * 200),
        safetensors(b'{"\xff":1}'),
        safetensors({"__metadata__": {"format": "pt"}, "w": tensor("F32", [2, 1], 0, 8)}, b"12345678"),
        safetensors({"s": tensor("I64", [], 0, 8), "e": tensor("BF16", [0, 3], 8, 8), "h": tensor("F4", [4], 8, 10)}, b"1234567890"),
        safetensors({"w": tensor("F64", [2**61], 0, 0)}),
        safetensors({"w": tensor("U8", [2**63, 0], 0, 0)}),
        safetensors(b'{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
    ],
    "config": [
        b"",
        b"[train]\nsteps = 5\nfast = false\n[optimizer]\nlr = 1e-3\nbetas = [0, 0.5]\ncoefficients = [[1, 2, 3]]\n",
        b"[compare]\nnames = ['a', \"b\\u00e9\\\"\\n\"]\nseeds = [1, 2]\n[compare.override.x]\n'optimizer.lr' = 1\noptimizer.side = 'left'\n",
        b"[compare.override.'odd \\u007f']\ntrain.steps = 0x10\n",
        b"'train.steps' = 1\n[train]\nsteps = 2\n",
        b"data.path = 2024-01-01T00:00:00Z\n[[train]]\n",
        b"optimizer.lr = nan\ncompare.seeds = [[], [{}]]\n",
        b"# \xff\n\x00",
        b"-\xd1\x8b\0\0\0\0\0\0\0\0trar",
        b'data.path = """\\\n\xc2\xa7"""',
        "data.path = '''\n\u540d\x7f\n'''".encode(),
        b'dopiaa=1names""""m\xc2\xa7"""',
        b'[compare]\nseeds = [1, 2omparedatc."""\xc2\xa7"2"]\n',
        b"--set train.steps=5",
        b"--set compare.names=a, 'b',\"c\",[",
        b"--set optimizer.coefficients=[[1,2],[]]",
        b"--set compare.override.x.optimizer.lr=auto",
        b"--set data.path=\xff\n=",
    ],
    "json_lines": [
        b"",
        b'{"step":1}\n{"step":2,"loss":0.5}\n',
        b'{"step":1}\n{"step":9}\n{"st',
        b'{"step":1}\n\n[]\n',
        b'{"step":18446744073709551615}\n',
        b'{"step":1,"step":2}\n',
        b'{"step":5}\n' + b"\0" * 20,
        b'{"step":1e999}\n',
    ],
    "jsonl": [
        b"",
        b'{"text":"one"}\n{"id":7,"text":"two \\u00e9\\ud83d\\ude00"}\n',
        b'{"text":"no newline"}',
        b'{"text":"a","text":"b"}\n',
        b'{"text":"\\ud800"}\n{"text":"\xff"}\n\n',
        b'{"nested":{"text":"inner"},"text":"' + b"long " * 40 + b'"}\r\n',
        b'{"text":5}\n[1]\n',
    ],
    "shard_header": [
        b"",
        shard(20240520, 1, 3, b"123456"),
        shard(20240801, 7, 2, b"12345678"),
        shard(20240520, 1, -1, b""),
        shard(20240801, 1, 2**31 - 1, b"1"),
        b"{}",
    ],
    "page": [
        b"",
        b"[]",
        page(),
        page(kind="train", created="now", program="prism", baseline="a", tolerance=0.02, confidence=0.95, config="x", command="y"),
        page(summary=[{"text": "</script> **bold**", "tone": "headline"}], highlights=[{"value": "1", "label": "loss"}]),
        page(optimizers=[{"id": "a", "label": "A", "sweep": [{"lr": 0.1, "loss": None, "status": "diverged"}], "best_lr": 0.1, "edge": "low",
                          "tolerance": {"low": 0.1, "high": 1, "low_open": True}, "final": {"mean": 1, "seeds": [{"seed": 1, "loss": 1}]},
                          "difference": {"mean": 0, "low": -1, "high": 1}, "tokens_to_baseline": None, "memory": {"peak": 5, "of": "host"}}]),
        page(runs=[{"optimizer": "a", "lr": 0, "seed": 1, "status": "finished", "best": True, "train": {"step": [1, 2], "loss": [2, None]},
                    "val": {"step": [2], "tokens": [4], "seconds": [1], "loss": [1]}, "norms": {"step": [1], "weight": [3]},
                    "spectra": [{"step": 1, "matrix": "w", "gamma": 1, "snr": [1], "gain": [1], "theory": [1], "singular_values": [2]}]}]),
        page(routing=[{"optimizer": "a", "rows": [{"parameter": "w", "shape": [2], "to": "A"}]}], facts=[{"title": "t", "rows": [["a", "b"]]}],
             samples=[{"optimizer": "a", "prompt": "p", "text": "t"}]),
    ],  # fmt: skip
    "tokenizer_json": [
        b"",
        b"{}",
        b"[" * 1000,
        tokenizer_patch(added_tokens=[added_token("<end>", 257, special=True), added_token("\u00e9 ", 258, normalized=True, lstrip=True)]),
        tokenizer_patch(added_tokens=[added_token("a", 97, single_word=True, rstrip=True), added_token(" ", 32)]),
        tokenizer_patch(added_tokens=[added_token("", 257)]),
        tokenizer_patch(added_tokens=None, normalizer=None, model={"vocab": {"abab": 257}, "merges": ["a b", "ab ab"], "ignore_merges": True}),
        tokenizer_patch(pre_tokenizer={"type": "ByteLevel", "pretokenizers": None, "add_prefix_space": False, "use_regex": True}),
        tokenizer_patch(model={"vocab": {"a": None}}),
        tokenizer_patch(model={"vocab": {"far": 4294967295}}),
        tokenizer_patch(model={"vocab": {"far": 2097151}}, added_tokens=[]),
        tokenizer_patch(model={"vocab": {"b": -1}, "merges": [["a"], 3]}),
        tokenizer_patch(truncation={"max_length": 3}, padding=1, decoder=[], post_processor={"type": "TemplateProcessing"}),
    ],
}


CORPUS = pathlib.Path(__file__).parent / "corpus"
CORPUS_BYTES = 24000


def corpus(target):
    file = CORPUS / f"{target}.txt"
    return [ast.literal_eval(line) for line in file.read_text().splitlines()] if file.exists() else []


def keep_corpus(target, folder):
    inputs = sorted({path.read_bytes() for path in folder.iterdir()}, key=lambda data: (len(data), data))
    lines, size = [], 0
    for data in inputs:
        line = repr(data) + "\n"
        size += len(line)
        if size > CORPUS_BYTES:
            break
        lines.append(line)
    CORPUS.mkdir(exist_ok=True)
    (CORPUS / f"{target}.txt").write_text("".join(lines))


def main():
    if sys.argv[1] == "--corpus":
        return keep_corpus(sys.argv[2], pathlib.Path(sys.argv[3]))
    for target, inputs in SEEDS.items():
        folder = pathlib.Path(sys.argv[1], target)
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate([*inputs, *corpus(target)]):
            (folder / f"{number:03d}").write_bytes(data)


if __name__ == "__main__":
    main()
