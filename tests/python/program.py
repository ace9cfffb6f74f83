"""The built program, for tests that run it."""

import json
import os
import pathlib
import random
import signal
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("PRISM_BUILD_DIR", "build/release")
PROGRAM = BUILD / "prism"
ENVIRONMENT = {**os.environ, "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}


def take_hangups():
    """Tests that run under nohup hand down a SIGHUP that is ignored; the program's own answer to it is what they test."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def start(*arguments, **options):
    assert PROGRAM.exists(), f"{PROGRAM} is missing: build it first (make test), or set PRISM_BUILD_DIR"
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": ENVIRONMENT,
               "preexec_fn": take_hangups, **options}
    return subprocess.Popen([PROGRAM, *map(str, arguments)], **options)


def run(*arguments, timeout=300, status=0, **options):
    """Runs the program to its end and checks its exit status."""
    process = start(*arguments, **options)
    output, errors = process.communicate(timeout=timeout)
    assert process.returncode == status, f"exit status {process.returncode}\n{output}\n{errors}"
    return output, errors


def json_lines(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def sentences(documents, seed=1):
    """Texts with structure a model can learn: short sentences over few words."""
    words = "the a small large red blue cat dog bird tree sees likes finds and then now never".split()
    generator = random.Random(seed)
    return [" ".join(generator.choice(words) for _ in range(300)) for _ in range(documents)]


def write_corpus(folder, documents, seed=1):
    folder.mkdir(parents=True, exist_ok=True)
    for document, text in enumerate(sentences(documents, seed)):
        (folder / f"{document}.txt").write_text(text)
    return folder


TIMINGS = {"seconds", "step_ms", "optimizer_ms", "tokens_per_s"}


def without_timings(lines):
    return [{key: value for key, value in line.items() if key not in TIMINGS} for line in lines]
