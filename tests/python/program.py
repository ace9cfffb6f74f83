"""The built program and the tools of the tests, for tests that run them."""

import json
import os
import pathlib
import random
import re
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("PRISM_BUILD_DIR", "build/release")
PROGRAM = BUILD / "prism"
ENVIRONMENT = {**os.environ, "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
TIMEOUT = 600  # seconds after which a program counts as hung: far above what any of them needs on a busy machine


def take_hangups():
    """Restores the default SIGHUP, which a nohup around the tests sets to ignored; the tests are about the program's own handling."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def start(*arguments, **options):
    assert PROGRAM.exists(), f"{PROGRAM} is missing: build it first (make test), or set PRISM_BUILD_DIR"
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": ENVIRONMENT,
               "preexec_fn": take_hangups, **options}
    return subprocess.Popen([PROGRAM, *map(str, arguments)], **options)


def run(*arguments, status=0, **options):
    """Runs the program to its end and checks its exit status."""
    process = start(*arguments, **options)
    output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == status, f"exit status {process.returncode}\n{output}\n{errors}"
    return output, errors


def wait_until(condition, process):
    """Waits until the condition holds or the process ends, however long a busy machine takes."""
    deadline = time.monotonic() + TIMEOUT
    while not condition() and process.poll() is None:
        assert time.monotonic() < deadline, "the process neither ends nor does what is waited for"
        time.sleep(0.005)


def without_progress(errors):
    """Returns standard error without the lines that show what takes longer than two seconds: "4.0 s … measuring a step"."""
    return "".join(line for line in errors.splitlines(keepends=True) if not re.match(r"[\d.]+ (s|min \d\d s) … ", line))


def run_tool(name, *arguments, **options):
    """Runs a tool of the tests, such as "io/safetensors_tool", and returns how it ended."""
    tool = BUILD / "tests" / name
    assert tool.exists(), f"{tool} is missing: build the tests first (make test), or set PRISM_BUILD_DIR"
    options = {"capture_output": True, "text": True, "timeout": TIMEOUT, **options}
    return subprocess.run([tool, *map(str, arguments)], check=False, **options)


def json_lines(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def sentences(documents, seed=1):
    """Returns texts that a small model can learn: few words in random order."""
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
