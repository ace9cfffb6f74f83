"""The command line from outside: help, exit statuses, one clear line for every mistake, and nothing left behind."""

import gzip
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import struct
import subprocess

import pytest
from program import ENVIRONMENT, ROOT, TIMEOUT, run, start, wait_until, without_progress

COMMANDS = [
    "train", "compare", "reproduce", "inspect", "eval", "generate", "export", "completions", "tokenizer train", "tokenizer encode", "tokenizer decode", "tokenizer info", "data build", "data info",
    "bench optimizer", "bench kernels", "bench train", "bench scaling", "doctor",
]  # fmt: skip
GROUPS = ["tokenizer", "data", "bench"]

# Mistakes of users by command: (arguments, regular expression of the message). Words in braces are the files of `places`;
# {new} is a path that does not exist and must not exist afterward. A new command needs a line in COMMANDS and rows here.
TOKENIZER_FILES = [
    ("{missing}", "missing.*No such file"),
    ("{empty}", "empty.*JSON"),
    ("{binary}", "binary.*JSON"),
    ("{folder}", "tokenizer.json"),
    ("{text}", "text.txt.*JSON"),
    ("{json}", "some.json: "),
]
TEXT_FILES = [
    ("{missing}", "missing"),
    ("{empty}", "expected text"),
    ("{binary}", "expected text, got binary data"),
    ("{corrupt}", "corrupt.txt.gz"),
]
MODELS = [
    ("{missing}", "missing: does not exist"),
    ("{text}", "text.txt: not a folder"),
    ("{folder}", "expected a run, a checkpoint or a Hugging Face folder"),
    ("{empty_run}", "expected a valid checkpoint"),
    ("{damaged_run}", "model.safetensors"),
    ("{damaged_run}/checkpoints/step-00000002", "model.safetensors"),
    ("{foreign_model}", "LlamaForCausalLM"),
    ("{broken_model}", "config.json"),
    ("{model_without_weights}", "safetensors"),
]
TRAIN = "--out {new} --set data.path={corpus} --set data.vocab=300"
SMALL = "--set model.preset=demo --set train.steps=2 --set schedule.warmup=0 --set run.device=cpu"
MISTAKES = {
    "tokenizer train": [
        *((f"{path} --out {{new}}", message) for path, message in TEXT_FILES),
        ("{broken_jsonl} --out {new}", "broken.jsonl line 2: .*JSON"),
        ("{jsonl} --text-field body --out {new}", 'docs.jsonl line 1: .*"body"'),
        ("{foreign_parquet} --out {new}", "foreign.parquet"),
        ("{text}", "--out is required"),
        ("--out {new}", "text is required"),
        ("{text} --out {folder}", "Is a directory"),
        ("{text} --out {missing}/t.json", "there is no folder"),
        ("{text} --out {new} --vocab many", "--vocab: expected an integer, 1 or more, got 'many'"),
        ("{text} --out {new} --vocab -5", "--vocab: expected an integer, 1 or more, got '-5'"),
        ("{text} --out {new} --vocab 1e-3", "--vocab: expected an integer"),
        ("{text} --out {new} --vocab 9999999999999999999", "--vocab: expected an integer"),
        ("{text} --out {new} --vocab 100", "a vocabulary of 100 tokens is too small"),
        ("{text} --out {new} --vocab 60000", "give more text or ask for fewer"),
        ("{text} --out {new} --words bert", "--words: expected qwen2 or gpt2, got 'bert'"),
        ("{text} --out {new} --memory 0", "--memory: expected an integer from 1"),
        ("{text} --out {new} --extension py", 'extension such as ".txt", got "py"'),
        ("{text} --out {new} --out {new}", "--out: expected it only once"),
        ("{text} --out", "--out: expected a value"),
    ],
    "tokenizer encode": [
        *((f"{path} {{text}} --out {{new}}", message) for path, message in TOKENIZER_FILES),
        *((f"{{tokenizer}} {path} --out {{new}}", message) for path, message in TEXT_FILES),
        ("{tokenizer} {folder} --out {new}", "Is a directory"),
        ("{tokenizer} {text} --out {folder}", "Is a directory"),
        ("{tokenizer} {text} --format xml", "--format: expected text or json or binary, got 'xml'"),
        ("{tokenizer} {text} {text}", "unexpected argument"),
        ("{tokenizer} --out {new}", "standard input: expected text, got nothing"),
        ("", "tokenizer is required"),
    ],
    "tokenizer decode": [
        *((f"{path} {{ids}} --out {{new}}", message) for path, message in TOKENIZER_FILES),
        ("{tokenizer} {missing} --out {new}", "missing"),
        ("{tokenizer} {empty} --out {new}", "expected token ids, got none"),
        ("{tokenizer} {text} --out {new}", "text.txt:1: expected token ids"),
        ("{tokenizer} {binary} --out {new}", "binary.dat:1: expected token ids"),
        ("{tokenizer} {empty} --format binary --out {new}", "expected token ids, got none"),
        ("{tokenizer} {odd} --format binary --out {new}", "expected whole token ids"),
        ("{tokenizer} {folder} --out {new}", "Is a directory"),
        ("{tokenizer} {large_id} --out {new}", "expected ids below 300, the size of the vocabulary, got 300"),
        ("{tokenizer} {huge_id} --out {new}", "expected ids below 300"),
    ],
    "tokenizer info": [
        *TOKENIZER_FILES,
        ("", "tokenizer is required"),
        ("{tokenizer} --text", "--text: expected a value"),
    ],
    "data build": [
        *((f"{path} --tokenizer {{tokenizer}} --out {{new}}", message) for path, message in TEXT_FILES),
        *((f"{{corpus}} --tokenizer {path} --out {{new}}", message) for path, message in TOKENIZER_FILES),
        ("{corpus} --tokenizer {no_end} --out {new}", "special token <\\|endoftext\\|>"),
        ("{corpus} --tokenizer {tokenizer} --eos </s> --out {new}", "special token </s>.*data.eos"),
        ("{corpus} {broken_jsonl} --tokenizer {tokenizer} --out {new}", "broken.jsonl line 2: .*JSON"),
        ("{corpus} --tokenizer {tokenizer} --out {text}", "text.txt: cannot make the folder"),
        ("{corpus} --tokenizer {tokenizer} --out {text}/x", "cannot make the folder"),
        ("{corpus} --out {new}", "--tokenizer is required"),
        ("{corpus} --tokenizer {tokenizer} --out {new} --held-out 1.5", "--held-out: expected a number from 0 to 0.99"),
        ("{corpus} --tokenizer {tokenizer} --out {new} --held-out nan", "--held-out: expected a number"),
        ("{corpus} --tokenizer {tokenizer} --out {new} --held-out-documents 6", "documents left to train on"),
        ("{text} --tokenizer {tokenizer} --out {new} --held-out-documents 1", "documents left to train on"),
        ("{corpus} --tokenizer {tokenizer} --out {new} --held-out 0.1 --held-out-documents 2", "excludes"),
        ("{corpus} --tokenizer {tokenizer} --out {new} --held-out 0.1 --held-out-path {text}", "excludes"),
        ("{corpus} --tokenizer {tokenizer} --out {new} --held-out-path {missing}", "missing"),
        ("{corpus} --tokenizer {tokenizer} --out {new} --workers 0", "--workers: expected an integer from 1"),
        ("{corpus} --tokenizer {tokenizer} --out {new} --shard-tokens 0", "--shard-tokens: expected an integer from 1"),
    ],
    "data info": [
        ("{missing}", "missing.*found nothing"),
        ("{folder}", "expected token shards"),
        ("{text}", "text.txt: expected a token shard"),
        ("{empty}", "empty.*expected a token shard"),
        ("{binary}", "binary.*expected a token shard"),
        ("{shards} --tokenizer {foreign_tokenizer}", "made with the tokenizer"),
        ("{foreign_shards}", "made with the tokenizer"),
        ("{truncated_shards}", "train_000000.bin: expected .* the file is truncated"),
        ("{flipped_shards} --verify", "train_000000.bin: .* the file is damaged"),
        ("{shards_without_val_bin}", "val_000000.bin.*No such file"),
        ("{shards_with_broken_identity}", "train.json"),
    ],
    "doctor": [("here", "unexpected argument 'here'")],
    "train": [
        ("", "--out: expected a folder for the results, got nothing"),
        (f"{TRAIN} --steps 20", "unknown option '--steps'; set configuration keys with --set train.steps=20"),
        (f"{TRAIN} --optimizer.lr=0.1", "set configuration keys with --set optimizer.lr=0.1"),
        (f"{TRAIN} {SMALL} --set run.threads=100000", "run.threads: expected an integer ≥ 0 and ≤ 256, got 100000"),
        (f"{TRAIN} {SMALL} --set optimizer.lr=1e300", r"optimizer.lr: expected a real number ≥ 0 and ≤ 1e\+30"),
        (f"{TRAIN} {SMALL} --set train.batch=1000000000", "train.batch: expected a batch whose tokens fit into this machine's memory"),
        (f"{TRAIN} {SMALL} --set train.batch=8.5", "train.batch: expected an integer"),
        ("--config {missing}", "missing.*No such file"),
        ("--config {folder}", "regular file, got a folder"),
        ("--config {binary}", "binary.dat"),
        ("--config {text}", "text.txt:1: "),
        ("--config {broken_toml}", "broken.toml:2: .*train.stpes.*train.steps"),
        (f"{TRAIN} --set train.steps", "train.steps"),
        (f"{TRAIN} --set train.steps=many", "train.steps.*expected an integer"),
        (f"{TRAIN} --set train.steps=0", "train.steps.*expected an integer ≥ 1"),
        (f"{TRAIN} --set optimizer.nmae=muon", "optimizer.nmae.*optimizer.name"),
        (f"{TRAIN} --set optimizer.name=sgdd", "optimizer.name"),
        (f"{TRAIN} --set optimizer.lr=-1", "optimizer.lr"),
        (f"{TRAIN} --set optimizer.name=adamw --set optimizer.gamma=1", "optimizer.gamma: adamw has no such option"),
        (f"{TRAIN} --set train.batch=8 --set train.accumulate=3", "train.accumulate: expected a divisor"),
        (f"{TRAIN} --set schedule.warmup=5000", "schedule"),
        (f"{TRAIN} {SMALL} --set model.heads=3", "heads"),
        (f"{TRAIN} {SMALL} --set model.kv_heads=3", "kv_heads"),
        (f"{TRAIN} {SMALL} --set run.device=tpu", "run.device: expected auto, cpu, cuda or cuda:N"),
        (f"{TRAIN} {SMALL} --set run.device=cuda:99", 'run.device: no device "cuda:99"'),
        (f"{TRAIN} {SMALL} --set train.context=100000000", "train.context: expected at most 1048576, got 100000000"),
        (f"{TRAIN} {SMALL} --set data.tokenizer={{binary}}", "binary.dat"),
        (f"{TRAIN} {SMALL} --set data.held_out_path={{missing}}", "missing"),
        (f"--out {{new}} --set data.path={{shards}} {SMALL} --set data.eos=The", 'documents in these shards end with "<.endoftext.>"'),
        (f"--out {{new}} --set data.path={{corpus}} --set data.tokenizer={{no_end}} {SMALL}", "special token <.endoftext.>.*data.eos"),
        (f"{TRAIN} {SMALL} --set data.held_out_path={{text}} --set data.held_out=0.1", "data.held_out: data.held_out_path names the held-out text"),
        ("--out {new} --set data.path={shards} --set data.held_out_path={text} " + SMALL, "data.held_out_path: token shards contain their held-out text"),
        ("--out {new} --set data.path={missing} " + SMALL, "missing"),
        ("--out {new} --set data.path={binary} " + SMALL, "binary data"),
        ("--out {new} --set data.path={empty} " + SMALL, "empty"),
        ("--out {text} --set data.path={corpus} --set data.vocab=300 " + SMALL, "text.txt"),
        ("--out {new} --set data.path={foreign_shards} " + SMALL, "made with the tokenizer"),
        ("--out {new} --set data.path={shards},{corpus} " + SMALL, "expected folders of token shards or text, got both"),
        ("--out {new} --set data.path={truncated_shards} " + SMALL, "the file is truncated"),
        ("--resume --out {new}", "no run in"),
        ("--resume --out {folder}", "no run in"),
    ],
}


COMPARE = f"{TRAIN} {SMALL} --set compare.optimizers=prism,muon --set compare.lr=0.01,0.02"
MISTAKES["compare"] = [
    ("", "--out: expected a folder for the results, got nothing"),
    (f"{COMPARE} --seeds 1,2", "set configuration keys with --set compare.seeds=1,2"),
    ("--config {missing}", "missing.*No such file"),
    ("--config {broken_toml}", "broken.toml:2: .*train.stpes.*train.steps"),
    (f"{TRAIN} {SMALL}", "compare.optimizers.*expected at least one"),
    (f"{TRAIN} {SMALL} --set compare.optimizers=prism", "compare.lr.*expected at least one"),
    (f"{COMPARE} --set compare.optimizers=prism,prism", "compare.optimizers.*expected each value once"),
    (f"{COMPARE} --set compare.optimizers=prism,msgd", '"msgd" is not an optimizer'),
    (f"{COMPARE} --set compare.lr=0.01,0.01", "compare.lr.*expected each value once"),
    (f"{COMPARE} --set compare.lr=0.01,-1", "compare.lr.*expected"),
    (f"{COMPARE} --set compare.lr=fast", "compare.lr.*expected"),
    (f"{COMPARE} --set compare.seeds=1,1", "compare.seeds.*expected each value once"),
    (f"{COMPARE} --set compare.tolerance=0", "compare.tolerance.*expected"),
    (f"{COMPARE} --set compare.baseline=soap", "compare.baseline.*expected one of prism, muon"),
    (f"{COMPARE} --set compare.override.ssd.optimizer.name=ssd", "expected a name of compare.optimizers"),
    (f"{COMPARE} --set compare.override.muon.optimizer.gamma=2", "muon has no such option"),
    (f"{COMPARE} --set compare.override.muon.train.steps=9", "train.steps: must be the same for all optimizers"),
    (f"{COMPARE} --set model.heads=3", "heads"),
    (f"{COMPARE} --set data.path={{binary}}", "binary data"),
    (f"{COMPARE} --set run.device=tpu", "run.device"),
    (COMPARE.replace("{new}", "{text}"), "text.txt"),
]
REPRODUCE = "reproduce table2 --scale smoke --device cpu --pool {new}".removeprefix("reproduce ")
MISTAKES["reproduce"] = [
    ("", "name is required"),
    ("table2", "--scale is required"),
    ("tabel2 --scale smoke --pool {new}", 'expected an experiment.*did you mean "table2"'),
    ("table2 --scale smok --pool {new}", 'expected a scale.*did you mean "smoke"'),
    ("tolerance/124m --scale smoke --pool {new}", "--scale: expected sweep"),
    ("table1 --scale paper --pool {new}", "--data: .*FineWeb-Edu"),
    ("table1 --scale sweep --pool {new}", "--data: .*holds no run of table1"),
    (f"{REPRODUCE} --data {{missing}}", "missing"),
    (f"{REPRODUCE} --data {{text}} --tokenizer {{missing}}", "missing.*No such file"),
    (f"{REPRODUCE} --minutes -1", "--minutes: expected 0 or more"),
    (f"{REPRODUCE} --minutes soon", "--minutes"),
    (f"{REPRODUCE} --epochs 0", "--epochs: expected a number above 0"),
    (f"{REPRODUCE} --merge {{missing}}", "--merge .*missing: no such file"),
    (f"{REPRODUCE} --merge {{folder}}", "--merge .*expected result files"),
    (f"{REPRODUCE} --merge {{json}}", "some.json"),
    (f"{REPRODUCE} --set train.stesp=3", "unknown key.*train.steps"),
    (f"{REPRODUCE} --set compare.seeds=1,1", "compare.seeds.*expected each value once"),
    ("table2 --scale smoke --device tpu --pool {new}", "run.device"),
]
MISTAKES["export"] = [
    *((f"{path} --out {{new}}", message) for path, message in MODELS),
    ("{run}", "--out is required"),
    ("--out {new}", "source is required"),
    ("{run} --out {text}", "text.txt"),
    ("{run} --out {corpus}", "corpus"),
    ("{run} --out {new} --dtype int8", "--dtype: expected float32 or bfloat16, got 'int8'"),
]
MISTAKES["eval"] = [
    *((f"{path} {{text}}", message) for path, message in MODELS),
    *((f"{{run}} {path}", message) for path, message in TEXT_FILES),
    ("", "source is required"),
    ("{run}", "text is required"),
    ("{run} {text} --context -1", "--context: expected an integer, 0 or more"),
    ("{run} {text} --context 999999", "--context: expected at most the model's"),
    ("{run} {text} --batch 0", "--batch: expected an integer from 1 to 65536, got '0'"),
    ("{run} {text} --logits {folder}", "Is a directory"),
    ("{run} {text} --logits {missing}/l.safetensors", "there is no folder"),
    ("{run} {text} --device tpu", "--device: expected auto, cpu, cuda or cuda:N"),
]
MISTAKES["completions"] = [("", "shell is required"), ("tcsh", "shell: expected bash or zsh or fish, got 'tcsh'")]
MISTAKES["generate"] = [
    *MODELS,
    ("{run} --device tpu", "--device: expected auto, cpu, cuda or cuda:N, got \"tpu\""),
    ("", "source is required"),
    ("{run} --tokens 0", "--tokens: expected an integer, 1 or more, got '0'"),
    ("{run} --tokens ten", "--tokens: expected an integer"),
    ("{run} --temperature -1", "--temperature: expected a number from 0"),
    ("{run} --temperature nan", "--temperature: expected a number"),
    ("{run} --top-p 2", "--top-p: expected a number from 0 to 1, got '2'"),
    ("{run} --top-k -3", "--top-k: expected an integer, 0 or more"),
    ("{run} --device tpu", "expected auto, cpu, cuda or cuda:N"),
    ("{run} --seed -1", "--seed: expected an integer, 0 or more"),
]

CHECKPOINT = "{run}/checkpoints/step-00000002"
MISTAKES["inspect"] = [
    ("", "path is required"),
    ("{missing}", "expected a run folder"),
    ("{text}", "expected a run folder"),
    ("{folder}", "expected a run folder"),
    ("{empty_run}", "expected a run folder"),
    ("{run_with_bad_metrics}", "metrics.jsonl:2: "),
    ("{damaged_run}/checkpoints/step-00000002", "model.safetensors"),
    ("{run} --matrix no_such", "no_such"),
    ("{run} --data {text}", "--data: expected a checkpoint folder"),
    ("{run} --watch --page {new}", "--page: cannot be combined with --watch"),
    ("{run} --page {folder}", "Is a directory"),
    ("{run} --page {missing}/page.html", "there is no folder"),
    (f"{CHECKPOINT} --watch", "--watch: expected a run folder"),
    (f"{CHECKPOINT} --matrix no_such", "no_such"),
    (f"{CHECKPOINT} --data {{missing}}", "missing"),
    (f"{CHECKPOINT} --data {{binary}}", "binary data"),
    (f"{CHECKPOINT} --data {{jsonl}}", "tokens"),
]
MODEL = [("--model 22M", "--model: expected demo or 22m .*, got '22M'"), ("--model", "--model: expected a value")]
BENCH = [
    ("--device tpu", "expected auto, cpu, cuda or cuda:N"),
    ("--device cuda:99", 'no device "cuda:99"'),
    ("--json {folder}", "Is a directory"),
    ("--json {missing}/f.json", "there is no folder"),
    ("--json {binary}", "binary.dat.*JSON"),
    ("--json {other_device}", "got Some GPU; choose another file"),
]
MISTAKES["bench optimizer"] = [
    *MODEL,
    *BENCH,
    ("--repeats 0", "--repeats: expected an integer, 1 or more, got '0'"),
    ("--repeats many", "--repeats: expected an integer"),
    ("--only msgd", "--only: unknown optimizer 'msgd'"),
    ("--only prism_minimax", "did you mean 'prism_minimax9'"),
    ("--model demo --page {folder}", "Is a directory"),
    ("--model demo --page {missing}/page.html", "there is no folder"),
    ("--model demo --peers false", "'false' ended before it answered"),
]
MISTAKES["bench kernels"] = [*MODEL, *BENCH, ("--optimizer sgd", "--optimizer: expected prism or .*, got 'sgd'")]
MISTAKES["bench scaling"] = [
    *MODEL,
    ("--device tpu", "expected auto, cpu, cuda or cuda:N"),
    ("--ranks 0", "--ranks: expected an integer from 1 to 999999, got '0'"),
    ("--ranks many", "--ranks: expected an integer from 1"),
    ("--link 0", "--link: expected"),
    ("--tflops 1 2 3", "--tflops"),
    ("--tflops 1 2 3 4", "--tflops and --memory: expected both or neither"),
]
MISTAKES["bench train"] = [
    *BENCH,
    ("--preset 22M", "--preset: expected demo or 22m .*, got '22M'"),
    ("--optimizer sgd", "--optimizer: expected prism .*, got 'sgd'"),
    ("--optimizer adamw_rest", "--optimizer: expected prism .*, got 'adamw_rest'"),
    ("--steps 0", "--steps: expected an integer, 1 or more"),
    ("--batch 0", "--batch: expected an integer from 1 to 1048576, got '0'"),
    ("--context 100000000", "--context: expected an integer from 1 to 1048576, got '100000000'"),
    ("--vocab 9999999", "--vocab: expected an integer from 1 to 1048576, got '9999999'"),
    ("--peers false", "'false' ended before it answered"),
]


def make_shards(folder, corpus, tokenizer):
    run("data", "build", corpus, "--tokenizer", tokenizer, "--held-out", "0.3", "--out", folder)


def make_models(names, path):
    settings = ["data.vocab=300", "model.layers=1", "model.width=16", "model.mlp=16", "train.batch=2", "train.context=8", "data.held_out=0.3"]
    words = f"--out {{run}} --set data.path={{corpus}} {SMALL}".split() + [word for text in settings for word in ("--set", text)]
    names["run"] = path("run")
    run("train", *(word.format(**names) for word in words))
    names["empty_run"] = path("empty_run")
    (names["empty_run"] / "checkpoints").mkdir(parents=True)
    names["damaged_run"] = path("damaged_run")
    shutil.copytree(names["run"], names["damaged_run"])
    names["run_with_bad_metrics"] = path("run_with_bad_metrics")
    names["run_with_bad_metrics"].mkdir()
    lines = (names["run"] / "metrics.jsonl").read_text().splitlines()
    (names["run_with_bad_metrics"] / "metrics.jsonl").write_text(lines[0] + "\n" + lines[1][:20] + "\n")
    weights = names["damaged_run"] / "checkpoints/step-00000002/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    for kind in ("foreign_model", "broken_model", "model_without_weights"):
        names[kind] = path(kind)
        run("export", names["run"], "--out", names[kind])
    config = names["foreign_model"] / "config.json"
    config.write_text(config.read_text().replace("Qwen2ForCausalLM", "LlamaForCausalLM"))
    (names["broken_model"] / "config.json").write_text('{"architectures": [')
    (names["model_without_weights"] / "model.safetensors").unlink()


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Returns good and bad files by name."""
    root = tmp_path_factory.mktemp("places")

    def path(name, content=None):
        if isinstance(content, str):
            content = content.encode()
        if content is not None:
            (root / name).write_bytes(content)
        return root / name

    sentence = "The quick brown fox jumps over the lazy dog, again and again; sphinx of black quartz, judge my vow! "
    corpus = path("corpus")
    corpus.mkdir()
    for i in range(6):
        (corpus / f"{i}.txt").write_text(sentence * (20 + i) + str(i))
    path("folder").mkdir()
    names = {
        "missing": path("missing"),
        "folder": path("folder"),
        "empty": path("empty", b""),
        "binary": path("binary.dat", bytes(range(256)) * 64),
        "text": path("text.txt", sentence * 50),
        "json": path("some.json", '{"a": [1, 2]}'),
        "other_device": path("other_device.json", '{"device": "Some GPU"}'),
        "jsonl": path("docs.jsonl", '{"text": "one"}\n{"text": "two"}\n'),
        "broken_jsonl": path("broken.jsonl", '{"text": "one"}\n{"text": \n'),
        "broken_toml": path("broken.toml", "[train]\nstpes = 3\n"),
        "corrupt": path("corrupt.txt.gz", gzip.compress(sentence.encode() * 50)[:-9]),
        "foreign_parquet": path("foreign.parquet", b"PAR1 but nothing of the kind"),
        "ids": path("ids.txt", "1 2 3\n"),
        "large_id": path("large.txt", "1 2 300\n"),
        "huge_id": path("huge.txt", "9" * 40),
        "odd": path("odd.bin", b"\x01\x00\x02"),
        "corpus": corpus,
        "tokenizer": path("tokenizer.json"),
        "foreign_tokenizer": path("foreign.json"),
        "no_end": path("no_end.json"),
    }
    run("tokenizer", "train", corpus, "--vocab", 300, "--out", names["tokenizer"])
    run("tokenizer", "train", names["text"], "--vocab", 280, "--out", names["foreign_tokenizer"])
    run("tokenizer", "train", corpus, "--vocab", 300, "--special", "<end>", "--out", names["no_end"])
    for kind in ("shards", "foreign_shards", "truncated_shards", "flipped_shards", "shards_without_val_bin", "shards_with_broken_identity"):
        names[kind] = path(kind)
        make_shards(names[kind], corpus, names["tokenizer"])
    (names["foreign_shards"] / "tokenizer.json").write_bytes(names["foreign_tokenizer"].read_bytes())
    shard = names["truncated_shards"] / "train_000000.bin"
    shard.write_bytes(shard.read_bytes()[:-2])
    shard = names["flipped_shards"] / "train_000000.bin"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    (names["shards_without_val_bin"] / "val_000000.bin").unlink()
    make_models(names, path)
    (names["shards_with_broken_identity"] / "train.json").write_text('{"format": "something"}')
    return names


def contents(*folders):
    """Returns everything in the folders, with sizes and times of change."""
    found = {}
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("*")):
            status = path.lstat()
            found[str(path)] = (status.st_size, status.st_mtime_ns) if path.is_file() else None
    return found


def refused(command, arguments, message, folder):
    """Runs in `folder` without standard input; expects status 2 and one line."""
    output, errors = run(*command.split(), *arguments, status=2, cwd=folder, stdin=subprocess.DEVNULL)
    errors = without_progress(errors)
    assert output == ""
    assert errors.count("\n") == 1 and errors.endswith("\n"), errors
    assert errors.startswith(f"prism {command}: "), errors
    assert "terminate" not in errors and "what()" not in errors and "Exception raised" not in errors, errors
    assert re.search(message, errors), errors


@pytest.mark.parametrize(
    "command, arguments, message", [(command, *row) for command, rows in MISTAKES.items() for row in rows],
    ids=lambda value: str(value) or "nothing",
)  # fmt: skip
def test_a_mistake_is_one_clear_line_and_leaves_nothing_behind(places, tmp_path, command, arguments, message):
    work = tmp_path / "work"
    work.mkdir()
    root = places["text"].parent
    before = contents(root, work)
    words = [word.format(new=work / "new", **places) for word in arguments.split()]
    refused(command, words, message, work)
    assert contents(root, work) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_options_it_does_not_know(command, tmp_path):
    refused(command, ["--frobnicate"], "unknown option '--frobnicate'", tmp_path)
    refused(command, ["--hlep"], "unknown option '--hlep'; did you mean '--help'", tmp_path)
    refused(command, ["-z"], "unknown option '-z'", tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command):
    output, errors = run(*command.split(), "--help")
    assert errors == ""
    assert f"Usage: prism {command} " in output
    example = output[output.index("Example:") :]
    assert f"prism {command}" in example
    assert max(map(len, output.splitlines())) <= 80, output


def test_no_arguments_show_the_help_of_all_commands():
    output, _ = run()
    assert output == run("--help")[0]
    for command in COMMANDS:
        assert re.search(rf"^  {command.split()[0]} ", output, re.MULTILINE)
    assert max(map(len, output.splitlines())) <= 80, output


@pytest.mark.parametrize("group", GROUPS)
def test_the_help_of_a_group_fits_in_80_columns(group):
    output, _ = run(group, "--help")
    assert max(map(len, output.splitlines())) <= 80, output


def test_an_empty_folder_name_is_refused(tmp_path):
    for command in ("train", "compare"):
        refused(command, ["--out", ""], "--out: run.out: expected a string, not empty, got", tmp_path)


def completed(script, line):
    """Returns what bash offers for the line, whose last word is being typed."""
    words = re.findall(r"[^\s=]+|=", line) + ([""] if line.endswith((" ", "=")) else [])
    code = f"""source {script}
        COMP_WORDS=({" ".join(map(shlex.quote, words))}) COMP_CWORD={len(words) - 1}
        _prism; printf '%s\\n' "${{COMPREPLY[@]}}" """
    result = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr == ""
    return result.stdout.split()


def test_bash_completes_commands_options_files_keys_and_their_values(tmp_path):
    script = tmp_path / "prism.bash"
    script.write_text(run("completions", "bash")[0])
    assert completed(script, "prism tr") == ["train"]
    assert set(completed(script, "prism ")) >= {command.split()[0] for command in COMMANDS}
    assert completed(script, "prism tokenizer ")[:4] == ["train", "encode", "decode", "info"]
    assert completed(script, "prism train --d") == ["--dry-run"]
    assert completed(script, "prism export runs --dtype ") == ["float32", "bfloat16"]
    assert completed(script, "prism train --set train.st") == ["train.steps="]
    assert set(completed(script, "prism train --set schedule.kind=")) == {"constant", "cosine", "linear", "wsd"}
    assert completed(script, "prism train --set schedule.kind=co") == ["constant", "cosine"]
    assert completed(script, f"prism train --config {tmp_path}/pri") == [str(script)]
    assert completed(script, f"prism inspect {tmp_path}/pri") == [str(script)]
    assert completed(script, "prism completions f") == ["fish"]
    for command in COMMANDS:  # completion offers exactly what the help lists
        offered = [word for word in completed(script, f"prism {command} --") if word.startswith("--")]
        listed = re.findall(r"^  (?:-h,)?(--[a-z-]+)", run(*command.split(), "--help")[0], re.MULTILINE)
        assert sorted(offered) == sorted(listed), command


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completions_are_valid_scripts(shell, tmp_path):
    script = tmp_path / "script"
    script.write_text(run("completions", shell)[0])
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    result = subprocess.run([shell, "-n", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0 and result.stderr == ""


def test_help_is_a_command_too():
    assert run("help") == run("--help")
    assert run("help", "tokenizer", "train") == run("tokenizer", "train", "--help")
    for group, words in (("", ["help", "trian"]), ("", ["trian", "--help"]), (" tokenizer", ["help", "tokenizer", "trian"])):
        output, errors = run(*words, status=2)
        assert output == "" and errors == f"prism{group}: unknown command 'trian'; did you mean 'train'? (see prism{group} --help)\n"


def test_whole_numbers_are_integers_in_any_spelling(places):
    generated = [run("generate", places["run"], "--temperature", 0, "--tokens", tokens)[0] for tokens in ("10", "1e1", "10.0")]
    assert len(set(generated)) == 1
    _, errors = run("generate", places["run"], "--tokens", "1.5", status=2)
    assert "--tokens: expected an integer, 1 or more, got '1.5'" in errors


def test_a_folder_that_cannot_be_read_is_named(places, tmp_path):
    corpus = tmp_path / "corpus"
    (corpus / "closed").mkdir(parents=True)
    (corpus / "open.txt").write_text("text")
    (corpus / "closed").chmod(0)
    # Root may read everything, so run the program as another user.
    options = {"user": 65534} if os.geteuid() == 0 else {}
    tmp_path.chmod(0o777)  # for what it writes
    for folder in [corpus, *list(corpus.parents)[:3]]:
        folder.chmod(folder.stat().st_mode | 0o555)
    try:
        tokenizer = shutil.copy(places["tokenizer"], tmp_path / "tokenizer.json")
        process = start("data", "build", corpus, "--tokenizer", tokenizer, "--out", tmp_path / "new", **options)
    except PermissionError:
        pytest.skip("somebody else may not run the program")
    _, errors = process.communicate(timeout=TIMEOUT)
    (corpus / "closed").chmod(0o755)
    if process.returncode == 127:
        pytest.skip("somebody else may not load torch")
    assert process.returncode == 2 and f"{corpus / 'closed'}: cannot read: Permission denied" in errors, errors


def test_a_checkpoint_is_shown_with_its_step(places):
    checkpoint = places["run"] / "checkpoints/step-00000002"
    output, _ = run("inspect", checkpoint)
    assert output.splitlines()[0] == f"{checkpoint}  step 2"
    output, _ = run("inspect", checkpoint, "--data", places["corpus"], "--matrix", "layers.0.mlp.up_proj")
    assert "model.layers.0.mlp.up_proj.weight, step 3\n" in output


def test_tables_of_a_checkpoint_fit_80_columns(places):
    output, _ = run("inspect", places["run"] / "checkpoints/step-00000002", "--data", places["corpus"])
    tables = output.splitlines()[1:]  # the first line is the path
    assert "weights σ max  min" in output and "gain 10 %" in output
    assert max(map(len, tables)) <= 80, output


def test_every_command_of_the_program_has_rows_of_mistakes():
    def names(output):
        commands = output[output.index("Commands:") :].splitlines()[1:]
        return [line.split()[0] for line in commands[: commands.index("")]]

    found = []
    for name in names(run("--help")[0]):
        found += [f"{name} {sub}" for sub in names(run(name, "--help")[0])] if name in GROUPS else [name]
    assert sorted(found) == sorted(COMMANDS) == sorted(MISTAKES)


def test_the_version_is_that_of_the_project():
    version = re.search(r"project\(Prism VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    assert run("--version")[0] == f"prism {version}\n"


def test_an_unknown_command_is_answered_with_the_nearest():
    output, errors = run("tokeniser", status=2)
    assert errors == "prism: unknown command 'tokeniser'; did you mean 'tokenizer'? (see prism --help)\n"
    _, errors = run("tokenizer", "trian", status=2)
    assert errors == "prism tokenizer: unknown command 'trian'; did you mean 'train'? (see prism tokenizer --help)\n"
    _, errors = run("zzzzzz", status=2)
    assert errors == "prism: unknown command 'zzzzzz' (see prism --help)\n"
    _, errors = run("data", status=2)
    assert errors == "prism data: expected one of: build, info (see prism data --help)\n"


def test_a_full_disk_is_a_failure_and_not_a_mistake(places):
    with open("/dev/full", "w") as full:
        _, errors = run("tokenizer", "encode", places["tokenizer"], places["text"], status=1, stdout=full)
    assert errors == "prism tokenizer encode: standard output: cannot write: the disk is full\n"


def test_encode_and_decode_are_inverse_in_every_format(places, tmp_path):
    text = "Früh übt sich, wer 😀 heißt\n\n  again\t<|endoftext|> and the end"
    tokenizer = places["tokenizer"]
    expected = None
    for form in ("text", "json", "binary"):
        with open(tmp_path / "in", "w") as file:
            file.write(text)
        run("tokenizer", "encode", tokenizer, tmp_path / "in", "--format", form, "--out", tmp_path / form)
        ids = (tmp_path / form).read_bytes()
        if form == "binary":
            ids = list(struct.unpack(f"<{len(ids) // 2}H", ids))
        else:
            ids = json.loads(ids) if form == "json" else [int(word) for word in ids.split()]
        expected = expected or ids
        assert ids == expected and 299 in ids
        reading = "binary" if form == "binary" else "text"
        assert run("tokenizer", "decode", tokenizer, tmp_path / form, "--format", reading)[0] == text
    plain = run("tokenizer", "encode", tokenizer, tmp_path / "in", "--specials", "text")[0].split()
    assert "299" not in plain and len(plain) > len(expected)
    without = run("tokenizer", "decode", tokenizer, tmp_path / "json", "--skip-special")[0]
    assert without == text.replace("<|endoftext|>", "")


def test_encode_reads_standard_input_and_files_longer_than_a_piece(places, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    text = "".join(f"line {i}: the dog, and again 日本語 é\u0301\n\n\n" for i in range(80000))
    assert len(text.encode()) > 3 << 20
    theirs = tokenizers.Tokenizer.from_file(str(places["tokenizer"])).encode(text).ids
    (tmp_path / "long.txt.gz").write_bytes(gzip.compress(text.encode()))
    ours, _ = run("tokenizer", "encode", places["tokenizer"], tmp_path / "long.txt.gz", "--format", "json")
    assert json.loads(ours) == theirs
    process = start("tokenizer", "encode", places["tokenizer"], "-", stdin=subprocess.PIPE)
    output, _ = process.communicate(text)
    assert list(map(int, output.split())) == theirs
    back = start("tokenizer", "decode", places["tokenizer"], stdin=subprocess.PIPE)
    assert back.communicate(output)[0] == text


def test_tokenizer_info_shows_what_the_file_holds(places):
    output, _ = run("tokenizer", "info", places["tokenizer"], "--text", "the\tdog<|endoftext|>")
    assert re.search(r"^vocabulary +300 tokens$", output, re.MULTILINE)
    assert re.search(r"^hash +[0-9a-f]{32}$", output, re.MULTILINE)
    assert re.search(r'^special +299 "<\|endoftext\|>"$', output, re.MULTILINE)
    assert '"\\t"' in output and '"<|endoftext|>"' in output


def test_data_info_shows_both_splits_and_verifies(places):
    output, _ = run("data", "info", places["shards"], "--verify")
    for split in ("train", "val"):
        identity = json.loads((places["shards"] / f"{split}.json").read_text())
        assert re.search(rf"^{split} +{identity['tokens']:,} tokens in 1 shard$", output, re.MULTILINE)
        assert f"{identity['documents']} documents" in output
    assert "The quick brown fox" in output
    assert re.search("^verified ", output, re.MULTILINE)
    shard, _ = run("data", "info", places["shards"] / "train_000000.bin")
    tokens = json.loads((places["shards"] / "train.json").read_text())["tokens"]
    assert re.match(rf"shard +{tokens:,} tokens", shard), shard


def test_one_document_is_not_called_documents(places, tmp_path):
    built, _ = run("data", "build", places["text"], "--tokenizer", places["tokenizer"], "--out", tmp_path / "shards")
    shown, _ = run("data", "info", tmp_path / "shards")
    for output in (built, shown):
        assert output.count("1 document,") == 2 and "1 documents" not in output, output


def test_a_build_that_fails_keeps_the_old_shards(places, tmp_path):
    make_shards(tmp_path / "data", places["corpus"], places["tokenizer"])
    before = contents(tmp_path)
    arguments = [places["corpus"], places["broken_jsonl"], "--tokenizer", places["tokenizer"], "--out", tmp_path / "data"]
    refused("data build", map(str, arguments), "broken.jsonl line 2", tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_nothing_behind(places, tmp_path, signal_number):
    (tmp_path / "big").mkdir()
    line = "the quick brown fox jumps over the lazy dog again and again\n"
    for i in range(4):
        (tmp_path / "big" / f"{i}.txt").write_text(str(i) + line * 400_000)
    work = tmp_path / "work"
    work.mkdir()
    process = start("data", "build", tmp_path / "big", "--tokenizer", places["tokenizer"], "--out", work / "data", "--workers", "1")
    wait_until(lambda: list(work.glob("data/train_*.tmp")), process)
    process.send_signal(signal_number)
    output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1, errors
    assert errors.splitlines()[-1] == "prism data build: interrupted; nothing was written" and output == ""
    assert contents(work) == {}


def test_the_doctor_finds_this_machine_usable():
    output, errors = run("doctor")
    assert errors == "" and "Prism can train here" in output
    for line in ("torch", "processor", "float32", "bfloat16", "threads", "CUDA", "memory", "disk", "results", "terminal"):
        assert re.search(rf"^ *(ok|warning)  {line} ", output, re.MULTILINE), line
    assert "\x1b" not in output


@pytest.mark.gpu
def test_the_doctor_counts_the_gpus_and_says_when_they_are_hidden():
    output, _ = run("doctor")
    assert re.search(r"^ *ok  CUDA +[1-9]\d* devices?\b", output, re.MULTILINE), output
    output, _ = run("doctor", env={**ENVIRONMENT, "CUDA_VISIBLE_DEVICES": ""})
    assert re.search(r"^warning  CUDA +this torch has CUDA, but no device can be used", output, re.MULTILINE), output
    assert "CUDA_VISIBLE_DEVICES" in output


def test_the_doctor_says_what_stops_training(places):
    output, _ = run("doctor", "--out", places["text"], status=1)
    assert re.search(r"^problem  results +\S*text.txt is not a folder$", output, re.MULTILINE)
    assert "1 problem found; training will fail until it is fixed." in output


def test_the_doctor_advises_on_threads_and_locale():
    environment = {**ENVIRONMENT, "OMP_NUM_THREADS": "1", "LC_ALL": "C"}
    output, _ = run("doctor", env=environment)
    assert "export LANG=C.UTF-8" in output
    if (os.cpu_count() or 1) > 1:
        assert "unset OMP_NUM_THREADS" in output
