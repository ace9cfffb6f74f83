"""Shared by the endurance drivers: a small run, and the comparison of two runs. Needs only Python."""

import argparse
import json
import os
import pathlib
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import program  # noqa: E402
from program import json_lines, without_timings, write_corpus  # noqa: E402

STATE = ("model.safetensors", "optimizer.safetensors", "config.json")
SUMMARY = ("step", "tokens", "loss", "val_loss", "best_val_loss", "skipped", "initial_weights", "final_weights", "batches", "data")

SMALL = {
    "model.preset": "demo", "model.layers": 2, "model.width": 32, "model.heads": 4, "model.kv_heads": 2, "model.mlp": 48,
    "data.vocab": 300, "data.held_out": 0.1, "train.batch": 4, "train.context": 16, "train.eval_every": 8, "train.eval_sequences": 8,
    "schedule.warmup": 4, "checkpoint.keep": 3, "metrics.spectra_every": 10, "run.threads": 1, "run.device": "cpu",
}  # fmt: skip


def train(out, settings, *more):
    """Returns the arguments of `prism train` that resume the run in `out`, or begin it."""
    return ["train", "--resume", "--out", out, *(text for key, value in settings.items() for text in ("--set", f"{key}={value}")), *more]


def checkpoints(run):
    """Returns the steps of the finished checkpoints."""
    return sorted(int(path.name[5:]) for path in (run / "checkpoints").glob("step-????????"))


def checkpoint(run, step):
    return run / "checkpoints" / f"step-{step:08d}"


def state(run, step):
    content = json.loads((checkpoint(run, step) / "state.json").read_text())
    return {key: value for key, value in content.items() if key != "seconds"}


def lines(path, step):
    """Returns the lines up to a step, without the evaluation after it, which a run that stopped there lacks."""
    kept = [line for line in without_timings(json_lines(path)) if line["step"] <= step]
    if kept and path.name == "metrics.jsonl":
        kept[-1] = {key: value for key, value in kept[-1].items() if key not in ("val_loss", "weight_norm")}
    return kept


def summary(run):
    """Returns the summary without times and paths."""
    content = json.loads((run / "summary.json").read_text())
    kept = {key: content[key] for key in SUMMARY}
    kept["data"] = {key: value for key, value in kept["data"].items() if key != "sources"}
    return kept


def differences(left, right, step):
    """Returns the names of files that differ between two runs up to a step at which both have a checkpoint."""
    found = [
        name
        for name in STATE
        if (checkpoint(left, step) / name).read_bytes() != (checkpoint(right, step) / name).read_bytes()
    ]
    if state(left, step) != state(right, step):
        found.append("state.json")
    for name in ("metrics.jsonl", "spectra.jsonl"):
        if (left / name).exists() != (right / name).exists():
            found.append(name)
        elif (left / name).exists() and lines(left / name, step) != lines(right / name, step):
            found.append(name)
    return found


def whole_differences(left, right):
    """Returns the same for two finished runs, with their summaries."""
    ends = checkpoints(left)[-1], checkpoints(right)[-1]
    if ends[0] != ends[1]:
        return [f"last step {ends[1]}, expected {ends[0]}"]
    found = differences(left, right, ends[0])
    if summary(left) != summary(right):
        found.append("summary.json")
    return found


def leftovers(run):
    return sorted(str(path.relative_to(run)) for path in run.rglob("*.tmp*"))


def machine():
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    return {"processor": cpu, "cores": os.cpu_count(), "system": platform.platform()}


def commit():
    shown = subprocess.run(["git", "-C", program.ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return shown.stdout.strip() or "unknown"


class Driver:
    """The command line of a driver, its time and its result."""

    def __init__(self, name, description, count):
        self.name = name
        self.parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.parser.add_argument("--count", type=int, default=count, help=f"times to try (default {count})")
        self.parser.add_argument("--minutes", type=float, default=float("inf"), help="end after so many minutes, whatever the count")
        self.parser.add_argument("--seed", type=int, default=1)
        self.parser.add_argument("--json", type=pathlib.Path, help="write the result to this file")
        self.parser.add_argument("--work", type=pathlib.Path, help="folder for the runs (default: a temporary one)")

    def __enter__(self):
        self.options = self.parser.parse_args()
        self.random = random.Random(self.options.seed)
        self.begin = time.monotonic()
        self.temporary = tempfile.TemporaryDirectory(prefix=f"prism-{self.name}-", dir=self.options.work, ignore_cleanup_errors=True)
        self.folder = pathlib.Path(self.temporary.name)
        self.result = {"what": self.name, "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "seed": self.options.seed,
                       "commit": commit(), "machine": machine(), "tried": {}, "failures": []}  # fmt: skip
        return self

    def done(self, count):
        return count >= self.options.count or time.monotonic() - self.begin > 60 * self.options.minutes

    def tried(self, what, count=1):
        self.result["tried"][what] = self.result["tried"].get(what, 0) + count

    def fail(self, text):
        print(f"{self.name}: FAILED: {text}", file=sys.stderr, flush=True)
        self.result["failures"].append(text)

    def expect_equal_run(self, whole, run):
        """Fails unless the finished run equals `whole` and left no temporary files. Removes the run."""
        found = whole_differences(whole, run) + leftovers(run)
        if found:
            self.fail(f"{run.name}: differs in {found}")
        shutil.rmtree(run)
        self.tried("runs")

    def __exit__(self, kind, value, trace):
        """Writes the result, also of a driver that Ctrl-C ended early."""
        self.temporary.cleanup()
        if kind not in (None, KeyboardInterrupt):
            return False
        self.result["ended_early"] = kind is KeyboardInterrupt
        self.result["seconds"] = round(time.monotonic() - self.begin, 1)
        if self.options.json:
            self.options.json.parent.mkdir(parents=True, exist_ok=True)
            self.options.json.write_text(json.dumps(self.result, indent=2) + "\n")
        tried = ", ".join(f"{what} {count}" for what, count in self.result["tried"].items())
        print(f"{self.name}: {tried}; {len(self.result['failures'])} failures in {self.result['seconds']} s", flush=True)
        sys.exit(1 if self.result["failures"] else 0)
