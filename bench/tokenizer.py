#!/usr/bin/env python3
"""Times encoding and training against the `tokenizers` package, with one thread each, in one run.

Usage: bench/tokenizer.py [--text FILE] [--tokenizer FILE] [--megabytes N] [--vocabulary N] [--rounds N]

Without --text, the text is the Python sources of the torch wheel. A text file is split into documents at lines that hold
only <|endoftext|>. Without --tokenizer, encoding uses the vocabulary just trained. Times are processor seconds, the best
of the rounds, so that other work on the machine matters little. The ids are compared too.
Build the tests first (make test). PRISM_BUILD_DIR names the build folder (default build/release).
"""

import argparse
import importlib.util
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOOL = ROOT / os.environ.get("PRISM_BUILD_DIR", "build/release") / "tests/text/tokenizer_tool"


def documents_of(path, limit):
    if path:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(limit).split("\n<|endoftext|>\n")
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SystemExit("torch is not installed; give a text with --text")
    result, size = [], 0
    for source in sorted(pathlib.Path(spec.origin).parent.rglob("*.py")):
        result.append(source.read_text(errors="replace"))
        size += len(result[-1])
        if size >= limit:
            break
    return result


def run_tool(*arguments, documents):
    records = b"".join(struct.pack("<I", len(d)) + d for d in map(str.encode, documents))
    before = os.times()
    output = subprocess.run([TOOL, *map(str, arguments)], input=records, stdout=subprocess.PIPE, check=True).stdout
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return output.decode(), seconds


def processor_seconds(action):
    begin = time.process_time()
    result = action()
    return time.process_time() - begin, result


def their_trainer(documents, ours, vocabulary):
    """Trains a tokenizer with the rules of ours on the documents."""
    parts = json.loads(ours.read_text())["pre_tokenizer"]["pretokenizers"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(parts[0]["pattern"]["Regex"]), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary - 1, min_frequency=2, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def report(what, megabytes, ours, theirs):
    print(
        f"{what:8} prism {ours:8.3f} s {megabytes / ours:8.1f} MB/s   tokenizers {theirs:8.3f} s {megabytes / theirs:8.2f} MB/s"
        f"   ratio {theirs / ours:6.1f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text")
    parser.add_argument("--tokenizer", type=pathlib.Path)
    parser.add_argument("--megabytes", type=float, default=8)
    parser.add_argument("--vocabulary", type=int, default=16384)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    documents = documents_of(options.text, int(options.megabytes * 1e6))
    megabytes = sum(len(d.encode()) for d in documents) / 1e6
    print(f"{len(documents)} documents, {megabytes:.1f} MB")
    with tempfile.TemporaryDirectory() as folder:
        path = options.tokenizer
        if path is None:
            path = pathlib.Path(folder, "tokenizer.json")
            training = json.dumps({"vocabulary": options.vocabulary, "threads": 1, "allow_fewer": True})
            _, ours = run_tool("train", path, training, documents=documents)
            theirs, trained = processor_seconds(lambda: their_trainer(documents, path, options.vocabulary))
            same = json.loads(trained.to_str())["model"]["merges"] == json.loads(path.read_text())["model"]["merges"]
            report("train", megabytes, ours, theirs)
            print(f"         same {len(json.loads(path.read_text())['model']['merges'])} merges: {same}")

        lines = run_tool("time", path, options.rounds, documents=documents)[0].split("\n")[: options.rounds]
        package = Tokenizer.from_file(str(path))
        encode = lambda: package.encode_batch_fast(documents, add_special_tokens=False)  # noqa: E731
        rounds = [processor_seconds(encode) for _ in range(options.rounds)]
        report("encode", megabytes, min(float(line.split()[0]) for line in lines), min(seconds for seconds, _ in rounds))
        count = sum(len(e.ids) for e in rounds[-1][1])
        print(f"         ids: prism {lines[-1].split()[1]}, tokenizers {count}")


if __name__ == "__main__":
    main()
