"""`prism train` on several processes: equal to one process bit for bit in exact mode, and nothing left when a process dies."""

import os
import pathlib
import random
import signal
import sys

import mpi
import program
import pytest
from program import json_lines, without_timings, write_corpus

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "endure"))
import harness  # noqa: E402

pytestmark = pytest.mark.skipif(not mpi.is_available(), reason="needs mpirun and a build with MPI")

# Sides that are multiples of 4, so that a matrix's update does not depend on the others in its stack.
EXACT = {**harness.SMALL, "train.exact_reduction": "true", "train.accumulate": 4, "train.batch": 8, "train.steps": 50,
         "checkpoint.every": 5, "train.eval_every": 10}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Settings for text whose shards are built once."""
    folder = tmp_path_factory.mktemp("mpi")
    text = write_corpus(folder / "text", 200)
    settings = {"data.path": text, "data.cache": folder / "cache"}
    program.run(*harness.train(folder / "first", {**EXACT, **settings, "train.steps": 1, "schedule.warmup": 0}))
    return settings


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """The run of one process, without a launcher."""
    run = tmp_path_factory.mktemp("whole") / "run"
    program.run(*harness.train(run, {**EXACT, **data}))
    return run


@pytest.mark.parametrize("processes, owned", [(1, "true"), (2, "true"), (2, "false"), (4, "true"), (4, "false")])
def test_any_number_of_processes_gives_the_same_run_in_exact_mode(data, whole, tmp_path, processes, owned):
    settings = {**EXACT, **data, "run.owned": owned}
    output, errors = mpi.run(processes, *harness.train(tmp_path / "run", settings))
    assert harness.whole_differences(whole, tmp_path / "run") == []
    assert output.count("trained 50 steps") == 1
    assert errors.count(f"runs on {'1 process' if processes == 1 else f'{processes} processes'}, with MPI") == 1


def test_eight_processes_give_the_run_of_one_in_exact_mode(data, tmp_path):
    settings = {**EXACT, **data, "train.accumulate": 8, "train.steps": 10}
    program.run(*harness.train(tmp_path / "one", settings))
    mpi.run(8, *harness.train(tmp_path / "eight", settings))
    assert harness.whole_differences(tmp_path / "one", tmp_path / "eight") == []


@pytest.mark.parametrize("optimizer", ["muon", "soap", "adamw"])
def test_owned_parameters_give_the_same_run_with_other_optimizers(data, tmp_path, optimizer):
    settings = {**EXACT, **data, "optimizer.name": optimizer, "train.steps": 12, "metrics.spectra_every": 0, "train.accumulate": 6, "train.batch": 12}
    program.run(*harness.train(tmp_path / "one", settings))
    mpi.run(3, *harness.train(tmp_path / "three", settings))
    assert harness.whole_differences(tmp_path / "one", tmp_path / "three") == []


def test_the_fast_reduction_is_close_to_one_process(data, tmp_path):
    settings = {**EXACT, **data, "train.exact_reduction": "false", "train.accumulate": 1, "train.steps": 10}
    program.run(*harness.train(tmp_path / "one", settings))
    for processes, owned in [(2, "true"), (4, "false")]:
        run = tmp_path / f"run-{processes}"
        mpi.run(processes, *harness.train(run, {**settings, "run.owned": owned}))
        one, several = (without_timings(json_lines(folder / "metrics.jsonl")) for folder in (tmp_path / "one", run))
        assert [line["batch"] for line in one] == [line["batch"] for line in several]
        assert [line["loss"] for line in one] == pytest.approx([line["loss"] for line in several], rel=1e-4)
        assert [line["grad_norm"] for line in one] == pytest.approx([line["grad_norm"] for line in several], rel=1e-3)


@pytest.mark.parametrize("settings, message", [
    ({"train.exact_reduction": "false", "train.accumulate": 1, "train.batch": 3}, "expected a multiple of 2, for 2 processes with 1 equal part each, got 3"),
    ({"train.accumulate": 3, "train.batch": 6}, "train.accumulate: expected a multiple of the 2 processes, got 3"),
    ({"optimizer.lr": -1}, "optimizer.lr"),
    ({"data.path": "/nowhere"}, "/nowhere"),
])  # fmt: skip
def test_a_mistake_is_said_once_and_ends_all_processes(data, tmp_path, settings, message):
    _, errors = mpi.run(2, *harness.train(tmp_path / "run", {**EXACT, **data, **settings}), status=2, timeout=60)
    lines = [line for line in errors.splitlines() if line.startswith("prism train: ")]
    assert len(lines) == 1 and message in lines[0], errors
    assert not (tmp_path / "run" / "config.toml").exists()


def test_different_configurations_are_refused(data, tmp_path):
    commands = [harness.train(tmp_path / "run", {**EXACT, **data, "train.steps": steps}) for steps in (50, 60)]
    _, errors = mpi.finish(mpi.start_each(*commands), status=2, timeout=60)
    assert errors.count("the processes must have the same configuration: train.steps is 50 on process 0 and 60 on process 1") == 1


def test_torchrun_without_nccl_is_refused(data, tmp_path):
    environment = {**program.ENVIRONMENT, "WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    shown = program.run("doctor")[0]
    if "no NCCL" not in shown:
        pytest.skip("this build has NCCL")
    _, errors = program.run(*harness.train(tmp_path / "run", {**EXACT, **data}), status=2, env=environment)
    assert "this build has no NCCL; on CPUs start them with mpirun" in errors


def test_a_process_that_never_connects_is_an_error_after_the_time_out(data, tmp_path):
    commands = [harness.train(tmp_path / "run", {**EXACT, **data, "run.peer_timeout": 2}), ("sleep", "600")]
    _, errors = mpi.finish(mpi.start_each(*commands), status=1, timeout=2 + 2 * mpi.SECONDS_TO_END)
    assert errors.count("prism train: MPI did not connect the processes within 2 s; one of them may hang, or may not be this program") == 1


def test_a_wrong_number_of_processes_is_refused(data, tmp_path):
    environment = {**program.ENVIRONMENT, "OMPI_COMM_WORLD_SIZE": "2"}
    _, errors = program.run(*harness.train(tmp_path / "run", {**EXACT, **data}), status=2, env=environment)
    assert "OMPI_COMM_WORLD_SIZE: expected the number of processes that MPI has connected, 1, got '2'; start the program with the mpirun" in errors


def checkpointed(run, step):
    return lambda: any(found >= step for found in harness.checkpoints(run))


@pytest.mark.parametrize("victim, next_processes", [(0, 4), (1, 1), (1, 2)])
def test_a_killed_process_ends_all_and_the_run_goes_on(data, whole, tmp_path, victim, next_processes):
    generator, run = random.Random(victim + next_processes), tmp_path / "run"
    settings = {**EXACT, **data}
    process = mpi.start(2, *harness.train(run, settings))
    assert mpi.wait_until(checkpointed(run, generator.randrange(5, 40)), process)
    pids = mpi.ranks(process)
    assert len(pids) == 2
    os.kill(pids[victim], signal.SIGKILL)
    assert mpi.left_over(pids) == []
    process.communicate(timeout=mpi.SECONDS_TO_END)
    assert process.returncode != 0
    mpi.run(next_processes, *harness.train(run, settings))
    assert harness.whole_differences(whole, run) == []
    assert harness.leftovers(run) == []


def test_a_killed_launcher_leaves_no_process(data, tmp_path):
    run = tmp_path / "run"
    process = mpi.start(2, *harness.train(run, {**EXACT, **data, "train.steps": 5000}))
    assert mpi.wait_until(checkpointed(run, 5), process)
    pids = mpi.ranks(process)
    process.kill()
    assert mpi.left_over(pids) == []


@pytest.mark.parametrize("signaled", [0, 1])
def test_a_signal_to_any_process_saves_the_run(data, whole, tmp_path, signaled):
    run, settings = tmp_path / "run", {**EXACT, **data}
    process = mpi.start(2, *harness.train(run, settings))
    assert mpi.wait_until(lambda: (run / "metrics.jsonl").exists() and len(json_lines(run / "metrics.jsonl")) > 6, process)
    os.kill(mpi.ranks(process)[signaled], signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert f"saved at step {harness.checkpoints(run)[-1]}" in output
    program.run(*harness.train(run, settings))
    assert harness.whole_differences(whole, run) == []


def test_a_signal_to_the_launcher_saves_the_run(data, tmp_path):
    """mpirun passes SIGTERM on after some seconds, and kills the processes after as many again."""
    run, settings = tmp_path / "run", {**EXACT, **data, "train.steps": 5000, "checkpoint.every": 5000}
    launcher = [*mpi.LAUNCHER, "--mca", "odls_base_sigkill_timeout", "4", "-n", "2", mpi.PROGRAM]
    process = mpi.launch([*launcher, *harness.train(run, settings)])
    assert mpi.wait_until(lambda: (run / "metrics.jsonl").exists() and len(json_lines(run / "metrics.jsonl")) > 6, process)
    process.terminate()
    output, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert [f"saved at step {step}" in output for step in harness.checkpoints(run)] == [True]
    assert len(json_lines(run / "metrics.jsonl")) == harness.checkpoints(run)[0]


def test_a_signal_saves_nothing_if_a_process_hangs(data, tmp_path):
    run = tmp_path / "run"
    process = mpi.start(2, *harness.train(run, {**EXACT, **data, "train.steps": 5000, "checkpoint.every": 1000, "run.peer_timeout": 4}))
    assert mpi.wait_until(lambda: (run / "metrics.jsonl").exists() and len(json_lines(run / "metrics.jsonl")) > 6, process)
    pids = mpi.ranks(process)
    os.kill(pids[1], signal.SIGSTOP)
    os.kill(pids[0], signal.SIGTERM)
    try:
        process.communicate(timeout=30)
    finally:
        for pid in pids:
            if mpi.is_program(pid):
                os.kill(pid, signal.SIGKILL)
    assert process.returncode != 0
    assert harness.checkpoints(run) == []
    assert harness.leftovers(run) == []


def test_a_process_that_hangs_ends_the_others_after_the_time_out(data, tmp_path):
    run = tmp_path / "run"
    process = mpi.start(2, *harness.train(run, {**EXACT, **data, "train.steps": 5000, "run.peer_timeout": 6}))
    assert mpi.wait_until(checkpointed(run, 5), process)
    pids = mpi.ranks(process)
    os.kill(pids[1], signal.SIGSTOP)
    try:
        _, errors = process.communicate(timeout=30)
    finally:
        for pid in pids:
            if mpi.is_program(pid):
                os.kill(pid, signal.SIGKILL)
    assert process.returncode != 0
    assert "process 0: another process did not take part in" in errors and "within 6 s" in errors


def test_the_doctor_names_the_transports():
    output, _ = program.run("doctor")
    assert "processes" in output and "MPI: Open MPI" in output
