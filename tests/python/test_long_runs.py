"""Long runs: longer ones, early ends, the best weights, the live page, the table of metrics, a shared cache."""

import csv
import fcntl
import json
import re
import shutil
import time

import pytest
from program import TIMEOUT, json_lines, run, sentences, start, without_timings

STEPS = 24


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    root = tmp_path_factory.mktemp("long")
    (root / "text.txt").write_text("\n".join(sentences(40)))
    values = {
        "model.preset": "demo", "model.layers": 1, "model.width": 32, "model.heads": 2, "model.kv_heads": 1, "model.mlp": 48,
        "data.path": root / "text.txt", "data.cache": root / "cache", "data.vocab": 300, "train.steps": STEPS, "train.batch": 4, "train.context": 16,
        "train.eval_every": 4, "train.eval_sequences": 8, "schedule.warmup": 2, "checkpoint.every": 3, "checkpoint.keep": 20, "run.threads": 1, "run.device": "cpu",
    }  # fmt: skip

    def arguments(out, **changes):
        merged = {**values, **{key.replace("__", "."): value for key, value in changes.items()}}
        return ["train", "--out", out, *(text for key, value in merged.items() for text in ("--set", f"{key}={value}"))]

    return arguments


def weights(folder):
    return (sorted(folder.glob("checkpoints/step-????????"))[-1] / "model.safetensors").read_bytes()


def go_back(folder, step):
    """Takes the run back to that step's checkpoint."""
    for checkpoint in folder.glob("checkpoints/step-????????"):
        if checkpoint.name > f"step-{step:08d}":
            shutil.rmtree(checkpoint)
    (folder / "summary.json").unlink()


def test_a_wsd_run_that_is_made_longer_before_its_decay_is_the_longer_run(settings, tmp_path):
    wsd = {"schedule__kind": "wsd", "schedule__decay": 6}
    run(*settings(tmp_path / "short", train__steps=15, **wsd))
    go_back(tmp_path / "short", 9)
    _, errors = run("train", "--resume", "--out", tmp_path / "short", "--set", f"train.steps={STEPS}")
    assert "resumed at step 9" in errors and "warning" not in errors
    run(*settings(tmp_path / "long", **wsd))
    assert weights(tmp_path / "short") == weights(tmp_path / "long")
    lines = [without_timings(json_lines(tmp_path / name / "metrics.jsonl")) for name in ("short", "long")]
    for name in (0, 1):
        lines[name] = [{key: value for key, value in line.items() if key not in ("val_loss", "weight_norm")} for line in lines[name]]
    assert lines[0] == lines[1]


@pytest.mark.parametrize("kind", ["cosine", "wsd"])
def test_a_rate_that_jumps_is_announced(settings, tmp_path, kind):
    run(*settings(tmp_path / "run", train__steps=12, schedule__kind=kind))
    _, errors = run("train", "--resume", "--out", tmp_path / "run", "--set", f"train.steps={STEPS}")
    found = re.search(r"^warning: train.steps changed from 12 to 24, so the learning rate jumps from (\S+) at step 12 to (\S+) at step 13; ", errors, re.MULTILINE)
    assert found, errors
    lines = json_lines(tmp_path / "run/metrics.jsonl")
    assert [float(found[1]), float(found[2])] == pytest.approx([lines[11]["lr"], lines[12]["lr"]], rel=1e-3)
    _, errors = run("train", "--resume", "--out", tmp_path / "run", "--set", "train.steps=20", status=2)
    assert "train.steps: expected at least 24, the steps already done, got 20" in errors


def test_training_stops_when_the_held_out_loss_no_longer_falls(settings, tmp_path):
    stuck = {"optimizer__lr": 0, "optimizer__aux_lr": 0, "train__patience": 3}
    output, _ = run(*settings(tmp_path / "run", **stuck))
    assert re.search(r"^stopped early: the held-out loss did not improve on \d\.\d+ in 3 evaluations$", output, re.MULTILINE), output
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["status"] == "finished" and summary["stopped_early"] and summary["step"] == 16  # the first evaluation is the best
    assert "It stopped early" in (tmp_path / "run/report.html").read_text()
    go_back(tmp_path / "run", 9)
    run("train", "--resume", "--out", tmp_path / "run")
    assert json.loads((tmp_path / "run/summary.json").read_text())["step"] == 16  # evaluations before the interruption count
    run("train", "--resume", "--out", tmp_path / "run", "--set", "train.patience=0")
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["step"] == STEPS and "stopped_early" not in summary


def test_runs_that_are_compared_may_not_stop_early(settings, tmp_path):
    arguments = settings(tmp_path / "run", train__patience=3, **{"compare.optimizers": "prism,muon", "compare.lr": "0.01"})
    _, errors = run("compare", *arguments[1:], status=2)
    assert "train.patience: expected 0, got 3; all runs of a comparison train for the same number of steps" in errors


def test_the_best_weights_are_kept(settings, tmp_path):
    # A rate that is far too high at the end of its warm-up makes a later evaluation worse than an earlier one.
    changes = {"checkpoint__best": "true", "checkpoint__every": 4, "optimizer__name": "muon", "optimizer__lr": 3, "optimizer__aux_lr": 0.5, "schedule__warmup": 23, "schedule__kind": "linear"}
    run(*settings(tmp_path / "run", **changes))
    losses = {line["step"]: line["val_loss"] for line in json_lines(tmp_path / "run/metrics.jsonl") if "val_loss" in line}
    best = min(losses, key=losses.get)
    assert best != STEPS
    assert [path.name for path in (tmp_path / "run/best").iterdir()] == [f"step-{best:08d}"]
    kept = tmp_path / f"run/best/step-{best:08d}"
    assert (kept / "model.safetensors").read_bytes() == (tmp_path / f"run/checkpoints/{kept.name}/model.safetensors").read_bytes()
    options = ["--prompt", "the", "--temperature", "0", "--tokens", "8"]
    texts = {run("generate", path, *options)[0] for path in (tmp_path / "run/best", kept, tmp_path / f"run/checkpoints/{kept.name}")}
    assert len(texts) == 1
    go_back(tmp_path / "run", best - 4)
    run("train", "--resume", "--out", tmp_path / "run")
    assert [path.name for path in (tmp_path / "run/best").iterdir()] == [kept.name]


def test_the_page_is_there_and_whole_while_the_run_goes_on(settings, tmp_path):
    out = tmp_path / "run"
    process = start(*settings(out, train__steps=100000, checkpoint__every=0, train__eval_every=2))
    pages = set()
    while len(pages) < 4 and process.poll() is None:
        if (out / "report.html").exists():
            page = (out / "report.html").read_text()
            assert page.rstrip().endswith("</html>")
            assert "This run is running." in page
            pages.add(page)
        time.sleep(0.01)
    assert not (out / "summary.json").exists()
    process.terminate()
    process.communicate(timeout=TIMEOUT)
    assert "This run is interrupted." in (out / "report.html").read_text()


def test_the_table_of_metrics_has_the_scalars_of_every_step(settings, tmp_path):
    run(*settings(tmp_path / "run"))
    go_back(tmp_path / "run", 9)
    run("train", "--resume", "--out", tmp_path / "run")
    lines = json_lines(tmp_path / "run/metrics.jsonl")
    with open(tmp_path / "run/metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(lines) == STEPS
    for row, line in zip(rows, lines):
        for key, text in row.items():
            assert text == "" and key not in line or float(text) == line[key], key
    run(*settings(tmp_path / "none", metrics__csv="false", train__steps=3))
    assert not (tmp_path / "none/metrics.csv").exists()


def test_runs_that_share_a_cache_wait_for_each_other(settings, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    with open(cache / ".preparing", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start(*settings(tmp_path / "run", data__cache=cache, train__steps=3))
        assert process.stderr.readline() == f"waiting for another process to prepare data in {cache}\n"
        (cache / ".preparing").unlink()
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    assert not (cache / ".preparing").exists() and (cache / "train.json").exists()
