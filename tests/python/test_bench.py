"""prism bench on the processor: tables, figures and pages of a small model, and peers in the same run."""

import itertools
import json
import re
import shlex
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from program import ENVIRONMENT, PROGRAM, ROOT, TIMEOUT, run

USUAL = ["prism", "prism_minimax9", "prism_ema_minimax9", "prism_ema8_minimax9", "prism_recommended", "muon", "muon_minimax9", "tikhonovmuon_minimax9", "adamw", "adamw_rest"]


def names_of(table):
    """The first column of the lines below the rule."""
    lines = table.splitlines()
    rule = next(i for i, line in enumerate(lines) if line.startswith(("─", "-")))
    return [line.split()[0] for line in lines[rule + 1 :]]


def test_every_usual_optimizer_is_measured_and_written(tmp_path):
    figures, page = tmp_path / "f.json", tmp_path / "page.html"
    figures.write_text('{"step_ms": {"22m": {"prism": 1.5}}, "tokens_per_s": {"22m": 1}}')
    output, errors = run("bench", "optimizer", "--model", "demo", "--device", "cpu", "--repeats", 2, "--json", figures, "--page", page)
    assert "demo: 28 matrices, 1 M parameters" in output
    assert set(errors.splitlines()) <= {f"demo  {name}" for name in USUAL}  # what is being measured, once that takes two seconds
    assert names_of(output) == USUAL
    assert max(map(len, output.splitlines())) <= 100
    document = json.loads(figures.read_text())
    assert sorted(document["step_ms"]["demo"]) == sorted(USUAL)
    assert all(ms > 0 for ms in document["step_ms"]["demo"].values())
    assert document["step_ms"]["22m"] == {"prism": 1.5} and document["tokens_per_s"] == {"22m": 1}
    prism = document["details"]["demo"]["prism"]
    assert prism["tflops"] > 0 and prism["gb_per_s"] > 0 and "share_of_floor" not in prism and "captured_ms" not in prism
    assert prism["memory_mib"] == document["details"]["demo"]["muon"]["memory_mib"]
    assert all(f'"name":"{name}"' in page.read_text() for name in USUAL)


def test_others_are_measured_when_they_are_named():
    output, _ = run("bench", "optimizer", "--model", "demo", "--device", "cpu", "--repeats", 1, "--only", "ssd,adamw_rest", "prism_stacked")
    assert names_of(output) == ["adamw_rest", "prism_stacked", "ssd"]


def test_the_operators_of_a_step_are_shown(tmp_path):
    figures = tmp_path / "f.json"
    output, errors = run("bench", "kernels", "--model", "demo", "--device", "cpu", "--optimizer", "muon", "--json", figures)
    assert "aten::" in output and "outside of operators" in output and errors in ("", "demo\n")
    rows = json.loads(figures.read_text())["kernels"]["demo"]["muon"]
    assert rows[0]["ms"] >= rows[-1]["ms"] and all(row["calls"] > 0 for row in rows)


TINY = ["--preset", "demo", "--batch", 2, "--context", 16, "--vocab", 300, "--steps", 2]


def test_training_steps_are_measured_and_written(tmp_path):
    figures = tmp_path / "f.json"
    output, errors = run("bench", "train", *TINY, "--device", "cpu", "--optimizer", "prism_minimax9,adamw", "--profile", "--json", figures)
    assert "demo, 2 × 16 random tokens of 300; medians of 2 steps" in output
    assert all(re.fullmatch(r"\w+  step \d+/2", line) for line in errors.splitlines()), errors
    assert "One step with adamw" in output and "aten::" in output
    document = json.loads(figures.read_text())
    assert sorted(document["tokens_per_s"]) == ["demo_vocab300_2x16", "demo_vocab300_2x16_adamw"]
    for row in document["train"].values():
        assert 0 < row["optimizer_ms"] < row["step_ms"] and row["peak_bytes"] > 0 and not row["graph"]
        assert 0 < row["last_loss"] < row["first_loss"] < 7  # at first ln 300 = 5.70


def peers(*arguments):
    environment = {**ENVIRONMENT, "PRISM": str(PROGRAM), "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    command = [sys.executable, ROOT / "bench/peers.py", *map(str, arguments)]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT).stdout


def test_peers_are_measured_in_the_same_run():
    only = ["muon", "prism_optim_muon_minimax9", "torch_adamw_fused", "torch_adamw_fused_rest"]
    output = peers("--model", "demo", "--device", "cpu", "--repeats", 1, "--only", *only)
    assert names_of(output) == only
    assert re.match(r"peers: torch \d+\.\d+\S*, triton (\d\S*|not installed), dion ", output), output


def test_on_the_cpu_the_rates_of_both_types_stand_beside_the_ratio(tmp_path):
    figures = tmp_path / "f.json"
    pairs = {"prism_minimax9": "torch_muon", "adamw": "torch_adamw_fused"}
    output = peers("--model", "32x2", "--device", "cpu", "--repeats", 1, "--only", *pairs, *pairs.values(), "--json", figures)
    document = json.loads(figures.read_text())
    times, rates = document["step_ms"]["32x2"], document["products_gflops"]
    for ours, theirs in pairs.items():
        ratio = float(re.search(rf"{ours} takes ([\d.]+) × the time of {theirs}", output)[1])
        assert ratio == pytest.approx(times[ours] / times[theirs], abs=0.006)
    for name in ("float32", "ours"):
        assert f"({rates[name] / rates['bfloat16']:.2f} ×)" in output


def test_growth_is_a_straight_line_for_a_power_law(tmp_path):
    growth = tmp_path / "growth.json"
    widths = {f"{width}x2": {"torch_muon": (width / 256) ** 3} for width in (256, 512, 1024, 2048, 4096, 8192)}
    growth.write_text(json.dumps({"device": "none", "date": "2026-11-17", "step_ms": widths}))
    subprocess.run([sys.executable, ROOT / "bench/growth.py", growth, tmp_path / "growth.svg", "--draw"], check=True, timeout=TIMEOUT)
    lines = ElementTree.parse(tmp_path / "growth.svg").iter("{http://www.w3.org/2000/svg}polyline")
    points = [[float(x) for x in point.split(",")] for line in lines for point in line.get("points").split()]
    first = points[:6]
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(first)]
    assert all(step == pytest.approx(steps[0], abs=0.2) and step[0] > 0 > step[1] for step in steps)


def test_the_twin_in_pytorch_is_measured_in_the_same_run():
    assert names_of(peers("train", *TINY, "--device", "cpu")) == ["prism_minimax9", "torch_eager_adamw", "torch_eager_prism_minimax9"]


def test_a_peer_that_is_missing_is_named(tmp_path):
    script = tmp_path / "peer.sh"
    answers = [{"name": "theirs", "like": "adamw", "eager_ms": 1234.0, "memory_mib": 1}, {"name": "absent", "missing": "not installed"}, {}]
    greeting, *spoken = [f"echo {shlex.quote(json.dumps(line))}" for line in [{"names": ["theirs", "absent"]}, *answers]]
    script.write_text("\n".join([greeting, "read job", *spoken]))
    output, _ = run("bench", "optimizer", "--model", "demo", "--device", "cpu", "--only", "theirs,absent", "--peers", f"sh {script}")
    assert names_of(output)[0] == "theirs" and "1234" in output
    assert "not measured: absent (not installed)" in output


@pytest.mark.gpu
def test_on_a_gpu_steps_are_captured_too(tmp_path):
    figures = tmp_path / "f.json"
    run("bench", "optimizer", "--model", "demo", "odd", "--device", "cuda", "--repeats", 3, "--json", figures)
    for model in ("demo", "odd"):
        rows = json.loads(figures.read_text())["details"][model]
        assert set(rows) == {name for name in USUAL if model == "demo" or not name.endswith("_rest")}
        assert all(0 < row["captured_ms"] and 0 < row["eager_ms"] and 0 < row["memory_mib"] for row in rows.values())


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", ["prism_minimax9", "prism_ema_minimax9", "muon"])
def test_on_a_gpu_every_kernel_of_a_step_is_known(tmp_path, optimizer):
    figures = tmp_path / "f.json"
    output, _ = run("bench", "kernels", "--model", "22m", "--device", "cuda", "--optimizer", optimizer, "--json", figures)
    rows = {row["kernel"]: row for row in json.loads(figures.read_text())["kernels"]["22m"][optimizer]}
    assert {"sample", "advance", "factor", "rewrite", "Gram", "iteration", "W ← … − lr·TQ"} <= set(rows), output
    assert not [name for name in rows if "_kernel" in name and "count_kernel" not in name], output
    assert rows["Gram"]["tflops"] > 0 and rows["advance"]["gb_per_s"] > 0


@pytest.mark.gpu
def test_on_a_gpu_the_portable_kernel_can_be_measured(tmp_path):
    figures = tmp_path / "f.json"
    output, _ = run("bench", "kernels", "--model", "22m", "--device", "cuda", "--portable", "--cublas", 0.1, "--json", figures)
    rows = {row["kernel"]: row for row in json.loads(figures.read_text())["kernels"]["22m"]["prism_minimax9_portable"]}
    assert not [name for name in rows if "_kernel" in name and "count_kernel" not in name], output
    assert all(rows[name]["library_tflops"] > 0 for name in ("Gram", "Q = QZ, step 3", "W ← … − lr·TQ"))


@pytest.mark.gpu
def test_on_a_gpu_cublas_is_measured_on_the_same_products(tmp_path):
    figures = tmp_path / "f.json"
    output, _ = run("bench", "kernels", "--model", "22m", "--device", "cuda", "--cublas", 0.1, "--json", figures)
    rows = {row["kernel"]: row for row in json.loads(figures.read_text())["kernels"]["22m"]["prism_minimax9"]}
    assert "with every product at cuBLAS's rate" in output and "cuBLAS" in output.splitlines()[4]
    assert rows["Gram"]["library_tflops"] > 0 and "library_tflops" not in rows["advance"]


@pytest.mark.gpu
def test_on_a_gpu_training_steps_are_replayed_from_a_graph(tmp_path):
    figures = tmp_path / "f.json"
    output, _ = run("bench", "train", *TINY, "--device", "cuda", "--profile", "--json", figures)
    assert "from a CUDA graph" in output and "between kernels" in output and "product_kernel" in output
    assert json.loads(figures.read_text())["train"]["demo_vocab300_2x16"]["graph"]
