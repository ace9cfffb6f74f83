"""A corpus, settings of a small run of `prism train`, and a run that nothing interrupts, for test_train.py and test_resume.py."""

import json

import pytest
from program import json_lines, run, without_timings, write_corpus

STEPS = 24


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), 40)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def settings(corpus, cache):
    values = {
        "model.preset": "demo", "model.layers": 2, "model.width": 32, "model.heads": 4, "model.kv_heads": 2, "model.mlp": 48,
        "data.path": corpus, "data.cache": cache, "data.vocab": 300, "data.held_out": 0.1, "train.steps": STEPS, "train.batch": 4,
        "train.context": 16, "train.eval_every": 8, "train.eval_sequences": 8, "schedule.warmup": 4, "checkpoint.every": 3,
        "checkpoint.keep": 3, "metrics.spectra_every": 10, "run.threads": 1, "run.device": "cpu",
    }  # fmt: skip

    def arguments(out, **changes):
        merged = {**values, **{key.replace("__", "."): value for key, value in changes.items()}}
        return ["train", "--out", out, *(text for key, value in merged.items() for text in ("--set", f"{key}={value}"))]

    return arguments


@pytest.fixture(scope="module")
def whole(settings, tmp_path_factory):
    """A run that nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(*settings(folder))
    return folder


def newest(folder):
    return sorted((folder / "checkpoints").glob("step-????????"))[-1]


def assert_same_run(left, right):
    """Compares weights, optimizer state, data order and metrics: everything except times."""
    for name in ("model.safetensors", "optimizer.safetensors", "config.json"):
        assert (newest(left) / name).read_bytes() == (newest(right) / name).read_bytes(), name
    for name in ("metrics.jsonl", "spectra.jsonl"):
        assert without_timings(json_lines(left / name)) == without_timings(json_lines(right / name)), name
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (left, right)]
    for summary in summaries:
        for timed in ("timing", "memory"):
            del summary[timed]
        del summary["machine"]["date"]
    assert summaries[0] == summaries[1]


def contents(folder):
    """Returns every file in the folder with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
