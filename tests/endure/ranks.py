#!/usr/bin/env python3
"""Kills one process of a training run on several processes at random moments, and goes on with another number of them.

Each time no process may be left after ten seconds, the launcher's status must not be 0, and the run must end like one that nobody
interrupted, bit for bit. Needs mpirun and a build with MPI."""

import os
import signal
import time

import harness
import mpi
import program

PROCESSES = (1, 2, 4)


def kill_one(driver, run, settings, seconds):
    """Starts or resumes the run and kills a process at a random moment. Returns false if the run ended before."""
    count = driver.random.choice(PROCESSES[1:])
    process = mpi.start(count, *harness.train(run, settings))
    moment = time.monotonic() + driver.random.uniform(0, seconds)
    while time.monotonic() < moment and process.poll() is None:
        time.sleep(0.005)
    pids = mpi.ranks(process)
    if process.poll() is not None or not pids:
        errors = process.communicate()[1]
        if process.returncode != 0:
            driver.fail(f"{count} processes: exit status {process.returncode}: {errors}")
        return process.returncode != 0
    victim = driver.random.choice(pids)
    os.kill(victim, signal.SIGKILL)
    left = mpi.left_over(pids)
    if left:
        driver.fail(f"{len(left)} of {count} processes are left {mpi.SECONDS_TO_END} s after the death of one")
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    process.communicate()
    if process.returncode == 0 and not (run / "summary.json").exists():
        driver.fail(f"{count} processes: exit status 0 after the death of one")
    driver.tried(f"of {count} processes")
    return process.returncode != 0


def main():
    with harness.Driver("ranks", __doc__, 20) as driver:
        text = harness.write_corpus(driver.folder / "text", 200)
        settings = {**harness.SMALL, "data.path": text, "train.steps": 40, "checkpoint.every": 2, "train.accumulate": 4,
                    "train.exact_reduction": "true"}  # fmt: skip
        whole = driver.folder / "whole"
        program.run(*harness.train(whole, settings))
        begin = time.monotonic()
        mpi.run(4, *harness.train(driver.folder / "timed", settings))
        seconds, kills, runs = time.monotonic() - begin, 0, 0
        while not driver.done(kills):
            run = driver.folder / f"run-{runs}"
            while not driver.done(kills) and kill_one(driver, run, settings, seconds):
                kills += 1
                driver.tried("kills")
            mpi.run(driver.random.choice(PROCESSES), *harness.train(run, settings))
            runs += 1
            driver.expect_equal_run(whole, run)


if __name__ == "__main__":
    main()
