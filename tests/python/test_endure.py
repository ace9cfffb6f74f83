"""The drivers of `make endure`, for a few seconds each: they run to their end, and they notice what they look for."""

import json
import random
import shutil
import subprocess
import sys

import mpi
import program
import pytest

ENDURE = program.ROOT / "tests/endure"
sys.path.insert(0, str(ENDURE))
import faults  # noqa: E402
import harness  # noqa: E402
import soak  # noqa: E402


@pytest.mark.parametrize("name, count", [("kills", 12), ("faults", 5), ("flips", 300), ("ranks", 2)])
def test_a_driver_tries_as_often_as_it_is_told_and_finds_nothing(tmp_path, name, count):
    if name == "ranks" and not mpi.is_available():
        pytest.skip("needs mpirun and a build with MPI")
    command = [sys.executable, ENDURE / f"{name}.py", "--count", str(count), "--json", tmp_path / "result.json", "--work", tmp_path]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=program.TIMEOUT)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["tried"]["kills" if name == "ranks" else name] == count and result["failures"] == []
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_a_disk_that_is_full_before_anything_is_written_is_not_the_users_mistake(tmp_path):
    """Whichever call is the first to fail: status 1, and the disk is named. Making a folder once ended with status 2."""
    text = harness.write_corpus(tmp_path / "text", 40)
    for call in range(1, 9):
        run = tmp_path / f"run-{call}"
        command = harness.train(run, {**harness.SMALL, "data.path": text, "train.steps": 12})
        _, errors = program.run(*command, status=1, env=faults.environment(f"full:{call}", run, "/dev/null"))
        assert "the disk is full" in errors and str(run) in errors, (call, errors)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("endure")
    text = harness.write_corpus(folder / "text", 40)
    program.run(*harness.train(folder / "run", {**harness.SMALL, "data.path": text, "train.steps": 12, "checkpoint.every": 4}))
    return folder / "run"


def change_weight(run):
    file = harness.checkpoint(run, 12) / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def change_loss(run):
    lines = (run / "metrics.jsonl").read_text().splitlines(True)
    lines[4] = json.dumps({**json.loads(lines[4]), "loss": 1.0}) + "\n"
    (run / "metrics.jsonl").write_text("".join(lines))


CHANGES = {
    "model.safetensors": change_weight,
    "metrics.jsonl": change_loss,
    "spectra.jsonl": lambda run: (run / "spectra.jsonl").unlink(),
    "last step 8, expected 12": lambda run: shutil.rmtree(harness.checkpoint(run, 12)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_two_runs_that_differ_are_told_apart(whole, tmp_path, name):
    other = tmp_path / "other"
    shutil.copytree(whole, other)
    assert harness.whole_differences(whole, other) == [] and harness.leftovers(other) == []
    CHANGES[name](other)
    assert harness.whole_differences(whole, other) == [name]


def samples(steps, size):
    """Seven samples of each step, of memory that changes from step to step as an allocator's does."""
    generator = random.Random(1)
    return [(step, value) for step in range(steps) for value in [size(step) + generator.expovariate(1 / 3e6)] for _ in range(7)]


@pytest.mark.parametrize("leak", [0, 1000])  # bytes a step
def test_a_soak_sees_a_leak_and_not_what_the_allocator_keeps(leak):
    first, last, growth = soak.growth(samples(2400, lambda step: 88e6 + leak * step), 200)
    assert (growth > soak.TOLERANCE) == (leak > 0), (first, last)


def test_a_soak_does_not_judge_a_life_of_fewer_than_ten_cycles():
    assert soak.growth(samples(1999, lambda step: 88e6), 200) is None
    assert soak.growth(samples(2001, lambda step: 88e6), 200) is not None
    assert soak.growth([(step, None) for step in range(3000)], 200) is None


def test_a_soak_takes_a_killed_run_that_is_ahead_back_to_where_the_other_stopped(tmp_path):
    for step in (50, 100, 150):
        soak.harness.checkpoint(tmp_path, step).mkdir(parents=True)
    soak.go_back(tmp_path, 120)
    assert soak.harness.checkpoints(tmp_path) == [50, 100]


def test_a_soak_judges_a_killed_process_only_if_it_lived_half_as_long_as_the_other():
    settling = samples(2500, lambda step: 88e6 if step < 1000 else 92e6)  # by 4.5 %, then no more
    assert soak.growth(settling, 200, longest=9000) is None
    assert soak.growth(settling, 200, longest=4000)[2] > soak.TOLERANCE
