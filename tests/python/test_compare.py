"""`prism compare` from outside: every figure recomputed with NumPy, interruptions, planted differences."""

import csv
import json
import math
import random
import re
import shlex
import shutil
import signal
import subprocess
import time
import tomllib

import numpy as np
import pytest
from program import ENVIRONMENT, PROGRAM, TIMEOUT, json_lines, run, start, wait_until, write_corpus

SEEDS = [1, 2, 3, 4]
TOLERANCE = 0.05
RATES = {"adamw": [0.003, 0.01, 1e30], "muon": [0.005, 0.02, 0.08], "prism-ema": [0.02, 0.08]}


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    root = tmp_path_factory.mktemp("compare")
    write_corpus(root / "corpus", 30, seed=5)
    (root / "compare.toml").write_text(f"""
[model]
preset = "demo"
layers = 1
width = 16
heads = 2
kv_heads = 1
mlp = 32
[data]
path = ["{root}/corpus"]
cache = "{root}/cache"
vocab = 290
held_out = 0.1
[train]
steps = 12
batch = 4
context = 16
eval_every = 3
eval_sequences = 8
max_skips = 3
[schedule]
warmup = 2
[optimizer]
aux_lr = 0.01
[checkpoint]
every = 4
[run]
device = "cpu"
threads = 1
[compare]
optimizers = ["adamw", "muon", "prism-ema"]
lr = {RATES["muon"]}
seeds = {SEEDS}
tolerance = {TOLERANCE}
prompt = "the small"
sample_tokens = 4
[compare.override.adamw]
compare.lr = {RATES["adamw"]}
[compare.override.prism-ema]
compare.lr = {RATES["prism-ema"]}
optimizer.name = "prism"
optimizer.covariance = "ema"
""")

    def arguments(out, *more):
        return ["compare", "--config", root / "compare.toml", "--out", out, *more]

    return arguments


@pytest.fixture(scope="module")
def compared(settings, tmp_path_factory):
    """The folder of a finished comparison, and what it printed."""
    out = tmp_path_factory.mktemp("compared") / "out"
    output, _ = run(*settings(out))
    return out, output


def without_timings(value):
    if isinstance(value, dict):
        return {key: without_timings(item) for key, item in value.items() if key not in ("timing", "memory", "date")}
    return [without_timings(item) for item in value] if isinstance(value, list) else value


def stable_summary(folder):
    return json.dumps(without_timings(json.loads((folder / "summary.json").read_text())), indent=1)


# The oracle recomputes every figure from metrics.jsonl alone, with other methods than the program's.


def t_quantile(p, degrees):
    """Returns where the integral of Student's density, on a fine grid, reaches p."""
    x = np.linspace(0, 60, 600_001)
    density = (1 + x**2 / degrees) ** (-(degrees + 1) / 2)
    density *= math.gamma((degrees + 1) / 2) / (math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))
    integral = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)]) * (x[1] - x[0])
    return float(np.interp(p - 0.5, integral, x))


def interval(values):
    mean = np.mean(values)
    half = t_quantile(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def course(folder, optimizer, lr, seed):
    lines = json_lines(folder / "runs" / f"{optimizer}-lr{lr:g}-seed{seed}" / "metrics.jsonl")
    evaluated = [line for line in lines if "val_loss" in line]
    last = evaluated[-1]["val_loss"] if evaluated else None
    diverged = last is None or not last < lines[0]["loss"]
    return lines, evaluated, math.inf if diverged else last


def crossing(evaluated, key, target):
    """Returns where the line through the evaluations first reaches the target."""
    losses = np.array([line["val_loss"] for line in evaluated])
    reached = np.flatnonzero(losses <= target)
    if not len(reached):
        return None
    i = reached[0]
    x = [line[key] for line in evaluated]
    return x[0] if i == 0 else float(np.interp(-target, [-losses[i - 1], -losses[i]], [x[i - 1], x[i]]))


def good_rates(rates, losses):
    """Returns the range around the best rate where the line through (log rate, loss) stays within the tolerance."""
    best = int(np.argmin(losses))
    limit = losses[best] + TOLERANCE
    finite = [i for i in range(len(rates)) if math.isfinite(losses[i])]
    first = last = best
    while first - 1 in finite:
        first -= 1
    while last + 1 in finite:
        last += 1
    grid = np.linspace(math.log(rates[first]), math.log(rates[last]), 2_000_001)
    inside = np.interp(grid, np.log(rates[first : last + 1]), losses[first : last + 1]) <= limit + 1e-12
    center = int(np.argmin(np.abs(grid - math.log(rates[best]))))
    bad = np.flatnonzero(~inside)
    low = bad[bad < center].max(initial=-1) + 1
    high = bad[bad > center].min(initial=len(grid)) - 1
    opened = bool(low == 0 and first == 0), bool(high == len(grid) - 1 and last == len(rates) - 1)
    return math.exp(grid[low]), math.exp(grid[high]), *opened


def oracle(folder):
    """Returns all figures of the final table by optimizer, the baseline and the winner."""
    table = {}
    for optimizer, rates in RATES.items():
        losses = [course(folder, optimizer, lr, SEEDS[0])[2] for lr in rates]
        best = int(np.argmin(losses))
        lines, evaluated, _ = course(folder, optimizer, rates[best], SEEDS[0])
        low, high, low_open, high_open = good_rates(rates, losses)
        step, own = (float(np.median([line[name] for line in lines])) for name in ("step_ms", "optimizer_ms"))
        table[optimizer] = {
            "sweep": losses, "best_lr": rates[best], "edge": "low" if best == 0 else "high" if best == len(rates) - 1 else None,
            "by_seed": [course(folder, optimizer, rates[best], seed)[2] for seed in SEEDS], "evaluated": evaluated,
            "tolerance": (low, high, low_open, high_open), "step_ms": step, "optimizer_ms": own,
        }  # fmt: skip
    for row in table.values():
        row["final"] = interval(row["by_seed"][1:])
    baseline = min(("adamw", "muon"), key=lambda name: table[name]["final"][0])
    target = min(table[baseline]["sweep"])
    for name, row in table.items():
        row["difference"] = None if name == baseline else interval(np.subtract(row["by_seed"], table[baseline]["by_seed"])[1:])
        row["tokens"] = crossing(row["evaluated"], "tokens", target)
        row["seconds"] = crossing(row["evaluated"], "seconds", target)
    return table, baseline, min(table, key=lambda name: table[name]["final"][0])


def test_every_figure_of_the_summary_can_be_recomputed(compared):
    folder, _ = compared
    summary = json.loads((folder / "summary.json").read_text())
    table, baseline, winner = oracle(folder)
    assert summary["baseline"] == baseline and summary["winner"] == winner
    assert summary["seeds"] == SEEDS and summary["tolerance"] == TOLERANCE and summary["confidence"] == 0.95
    assert [entry["id"] for entry in summary["optimizers"]] == list(RATES)
    for entry in summary["optimizers"]:
        row = table[entry["id"]]
        assert [point["lr"] for point in entry["sweep"]] == RATES[entry["id"]]
        assert [point["loss"] for point in entry["sweep"]] == [loss if math.isfinite(loss) else None for loss in row["sweep"]]
        assert entry["best_lr"] == row["best_lr"] and entry["edge"] == row["edge"]
        assert [point["loss"] for point in entry["losses"]] == row["by_seed"]
        for name in ("final", "difference"):
            if row[name] is None:
                assert entry[name] is None
                continue
            ours = [entry[name][key] for key in ("mean", "low", "high")]
            np.testing.assert_allclose(ours, row[name], rtol=1e-7, atol=1e-8)
        tolerance = entry["tolerance"]
        np.testing.assert_allclose([tolerance["low"], tolerance["high"]], row["tolerance"][:2], rtol=1e-5)
        assert (tolerance["low_open"], tolerance["high_open"]) == row["tolerance"][2:]
        assert tolerance["factor"] == pytest.approx(row["tolerance"][1] / row["tolerance"][0], rel=1e-5)
        assert entry["tokens_to_baseline"] == (None if row["tokens"] is None else pytest.approx(row["tokens"], rel=1e-9))
        assert entry["timing"]["seconds_to_baseline"] == (None if row["seconds"] is None else pytest.approx(row["seconds"], rel=1e-9))
        assert entry["timing"]["step_ms"] == row["step_ms"] and entry["timing"]["optimizer_ms"] == row["optimizer_ms"]
    assert table["adamw"]["sweep"][2] == math.inf, "the test is meant to have a diverged run"


def test_the_table_on_the_screen_shows_these_figures(compared):
    folder, output = compared
    table, baseline, winner = oracle(folder)
    labels = {"adamw": "AdamW", "muon": "Muon", "prism-ema": "PRISM ema"}
    for name, row in table.items():
        (line,) = re.findall(rf"^{labels[name]}(?: \(baseline\))?  .*$", output, re.MULTILINE)
        assert ("(baseline)" in line) == (name == baseline)
        assert f" {row['best_lr']:.3g}{' (edge)' if row['edge'] else ''}  " in line
        mean, low, high = row["final"]
        assert f"{mean:.4f} ± {high - mean:.4f}" in line
        if row["difference"] is not None:
            assert f"{row['difference'][0]:+.4f} ± {row['difference'][2] - row['difference'][0]:.4f}" in line
        low, high, low_open, high_open = row["tolerance"]
        tolerance = f"{'≤' * low_open}{low:.3g} – {'≥' * high_open}{high:.3g}, ×{high / low:.2g}"
        assert tolerance in line or "good rates" not in output
        assert len(line) <= 80  # the rest is on the page
    assert f"{labels[winner]} has the lowest held-out loss: {table[winner]['final'][0]:.4f}" in output
    assert "AdamW diverged at 1e+30." in output
    for name, row in table.items():
        if row["edge"]:
            assert f"{labels[name]}'s best rate, {row['best_lr']:.3g}, is the {'lowest' if row['edge'] == 'low' else 'highest'} of its grid" in output
        if row["difference"] is not None:
            _, low, high = row["difference"]
            verdict = "lower" if high < 0 else "higher" if low > 0 else "not distinguishable"
            assert f"{labels[name]} {verdict} (" in output
    assert str(folder / "report.html") in output and "the small" in output


def test_the_csv_has_a_line_for_every_run(compared):
    folder, _ = compared
    with open(folder / "runs.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    planned = [(name, lr, SEEDS[0]) for name, rates in RATES.items() for lr in rates]
    table, _, _ = oracle(folder)
    planned += [(name, row["best_lr"], seed) for name, row in table.items() for seed in SEEDS[1:]]
    assert sorted((line["optimizer"], float(line["lr"]), int(line["seed"])) for line in lines) == sorted(planned)
    for line in lines:
        _, evaluated, loss = course(folder, line["optimizer"], float(line["lr"]), line["seed"])
        assert line["status"] == ("finished" if math.isfinite(loss) else "diverged")
        if math.isfinite(loss):
            assert float(line["val_loss"]) == loss and int(line["tokens"]) == evaluated[-1]["tokens"]


def test_all_start_alike_and_see_the_same_batches(compared):
    folder, _ = compared
    summary = json.loads((folder / "summary.json").read_text())
    starts = {}
    for entry in summary["runs"]:
        own = json.loads((folder / "runs" / entry["folder"] / "summary.json").read_text())
        batches = [line["batch"] for line in json_lines(folder / "runs" / entry["folder"] / "metrics.jsonl")]
        starts.setdefault(entry["seed"], []).append((own["initial_weights"], tuple(batches)))
        assert own["initial_weights"] == summary["initial_weights"][str(entry["seed"])]
        if entry["step"] == 12:
            assert own["batches"] == summary["batches"][str(entry["seed"])]
    assert sorted(starts) == SEEDS
    for runs in starts.values():
        longest = max((batches for _, batches in runs), key=len)
        assert len(longest) == 12 and all(batches == longest[: len(batches)] for _, batches in runs)
    assert len({runs[0][0] for runs in starts.values()}) == len(SEEDS), "seeds begin with weights of their own"


def test_a_finished_comparison_is_not_run_again(settings, compared):
    folder, output = compared
    before = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/metrics.jsonl")}
    summary = (folder / "summary.json").read_bytes()
    again, errors = run(*settings(folder))
    assert again == output
    assert "runs    all have ended\n" in errors and "needs   about" not in errors
    assert {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/metrics.jsonl")} == before
    assert (folder / "summary.json").read_bytes() == summary


def test_what_a_continued_comparison_needs_is_that_of_the_runs_left(settings, compared, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(compared[0], out)
    for path in out.glob("runs/*-seed4"):
        shutil.rmtree(path)
    _, errors = run(*settings(out))
    assert re.search(r"^needs   about \S+ s for 3 runs, ", errors, re.MULTILINE), errors


def test_killed_again_and_again_it_ends_with_the_same_summary(settings, compared, tmp_path):
    folder, _ = compared
    out = tmp_path / "out"
    generator = random.Random(11)
    for begun in (1, 3, 6, 9, 12, 14):  # of 17 runs
        process = start(*settings(out))
        wait_until(lambda: len(list(out.glob("runs/*/metrics.jsonl"))) >= begun, process)
        time.sleep(generator.uniform(0, 0.1))
        process.kill()
        process.communicate()
        assert (out / "summary.json").exists() == (process.returncode == 0)  # 0: the kill came too late
    run(*settings(out))
    assert stable_summary(out) == stable_summary(folder)


def test_a_planted_difference_is_caught(settings, compared, tmp_path):
    folder, _ = compared
    for name, change in {
        "metrics.jsonl": lambda text: text.replace('"batch":"', '"batch":"0', 1),
        "summary.json": lambda text: re.sub(r'("initial_weights": ?")', r"\g<1>0", text),
    }.items():
        out = tmp_path / name
        shutil.copytree(folder, out)
        planted = out / "runs" / "muon-lr0.02-seed1" / name
        text = planted.read_text()
        assert change(text) != text
        planted.write_text(change(text))
        output, errors = run(*settings(out), status=1)
        what = "saw different batches" if name == "metrics.jsonl" else "began with different weights"
        assert f"prism compare: the comparison is invalid: adamw-lr0.003-seed1 and muon-lr0.02-seed1 {what}" in errors, errors
        assert output == ""


def test_missing_metrics_are_named_with_the_way_out(settings, compared, tmp_path):
    folder, _ = compared
    out = tmp_path / "out"
    shutil.copytree(folder, out)
    damaged = out / "runs" / "muon-lr0.02-seed1"
    lines = len((damaged / "metrics.jsonl").read_text().splitlines())
    (damaged / "metrics.jsonl").write_text("")
    _, errors = run(*settings(out), status=2)
    assert f"metrics.jsonl: expected a line for each of {lines} steps, got 0; remove {damaged} to repeat this run" in errors
    shutil.rmtree(damaged)
    run(*settings(out))
    assert stable_summary(out) == stable_summary(folder)


@pytest.mark.parametrize("setting", ["train.steps=13", "optimizer.weight_decay=0.5", "train.batch=8", "data.vocab=280"])
def test_a_folder_with_other_settings_is_refused(settings, compared, tmp_path, setting):
    folder, _ = compared
    out = tmp_path / "out"
    shutil.copytree(folder, out)
    summary = (out / "summary.json").read_bytes()
    _, errors = run(*settings(out, "--set", setting, "--set", f"data.cache={tmp_path / 'cache'}"), status=2)
    assert setting.split("=")[0] in errors or "tokenizer" in errors, errors
    assert (out / "summary.json").read_bytes() == summary


def test_changed_text_is_refused_and_writes_nothing(settings, compared, tmp_path):
    folder, _ = compared
    out, cache = tmp_path / "out", tmp_path / "cache"
    shutil.copytree(folder, out)
    config = tomllib.loads((folder / "config.toml").read_text())
    shutil.copytree(config["data"]["cache"], cache)
    shutil.copytree(config["data"]["path"][0], tmp_path / "text")
    for path in out.glob("runs/*/config.toml"):
        path.write_text(path.read_text().replace(config["data"]["path"][0], str(tmp_path / "text")))
    changed = ["--set", f"data.cache={cache}", "--set", f"data.path={tmp_path / 'text'}"]
    run(*settings(out, *changed))
    (tmp_path / "text" / "0.txt").write_text("a bird")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    _, errors = run(*settings(out, *changed), status=2)
    assert "the training text or its tokenizer has changed since the run began" in errors
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_sighup_saves_a_comparison_which_goes_on_without_a_screen(settings, tmp_path):
    out = tmp_path / "out"
    toml = settings(out)[2].read_text()
    (tmp_path / "small.toml").write_text(toml[: toml.index("[compare.override.adamw]")])
    small = ["compare", "--config", tmp_path / "small.toml", "--out", out, "--set", "compare.optimizers=muon", "--set", "compare.seeds=1", "--set", "train.steps=60"]
    process = start(*small)
    wait_until(lambda: list(out.glob("runs/*/metrics.jsonl")), process)
    process.send_signal(signal.SIGHUP)
    output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + signal.SIGHUP and "run the same command to continue" in output, errors
    words = " ".join(shlex.quote(str(word)) for word in [PROGRAM, *small])
    subprocess.run(["bash", "-c", f"set -o pipefail; {words} 2>&1 | true"], check=True, env=ENVIRONMENT, timeout=TIMEOUT)
    assert json.loads((out / "summary.json").read_text())["winner"] == "muon"


def test_side_by_side_the_results_are_the_same_bit_for_bit(settings, compared, tmp_path):
    folder, output = compared
    out = tmp_path / "out"
    text, errors = run(*settings(out, "--set", "compare.jobs=3"))
    assert stable_summary(out) == stable_summary(folder)
    assert text.replace(str(out), "") == output.replace(str(folder), "") or "seconds" in text
    for run_folder in sorted((folder / "runs").iterdir()):
        theirs = out / "runs" / run_folder.name
        for name in ("config.toml", "checkpoints/step-00000012/model.safetensors", "checkpoints/step-00000012/optimizer.safetensors"):
            if (run_folder / name).exists():
                ours = (run_folder / name).read_bytes().replace(str(folder).encode(), b"")
                assert (theirs / name).read_bytes().replace(str(out).encode(), b"") == ours, (run_folder.name, name)


def test_side_by_side_a_signal_saves_all_and_the_same_command_goes_on(settings, compared, tmp_path):
    folder, _ = compared
    out = tmp_path / "out"
    arguments = settings(out, "--set", "compare.jobs=2", "--set", "run.threads=1")
    process = start(*arguments)
    wait_until(lambda: len(list(out.glob("runs/*/metrics.jsonl"))) >= 3, process)
    process.terminate()
    output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + signal.SIGTERM and "saved; run the same command to continue" in output, errors
    run(*arguments)
    assert stable_summary(out) == stable_summary(folder)


def test_side_by_side_a_run_that_fails_says_why(settings, compared, tmp_path):
    out = tmp_path / "out"
    run(*settings(out))
    shutil.rmtree(out / "runs/muon-lr0.02-seed1/checkpoints")
    (out / "runs/muon-lr0.02-seed1/summary.json").unlink()
    _, errors = run(*settings(out, "--set", "compare.jobs=2"), status=2)
    assert re.search(r"^prism compare: Muon lr 0.02 seed 1: .*cannot resume: no checkpoint can be used", errors, re.MULTILINE), errors
