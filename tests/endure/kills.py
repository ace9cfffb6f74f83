#!/usr/bin/env python3
"""Kills training runs at random moments until each has ended. Each must end like a run that was not interrupted.

A run builds its own data, so kills fall into that too. Half of the moments are drawn from the processor time of a whole run, so
that a busy machine does not shift them to the start. The others wait until a data file or a checkpoint is being written. Three
of four signals are SIGKILL. The others are SIGTERM, SIGINT and SIGHUP: a run that trains must save and exit with 128 + signal."""

import pathlib
import re
import signal
import time

import harness
import program

GENTLE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


DATA, CHECKPOINT = "data/*.tmp*", "checkpoints/*.tmp-*"


def snapshot(run):
    """Returns the unfinished files and the size of the metrics, which a writing process changes."""
    metrics = run / "metrics.jsonl"
    return {"unfinished": {*run.glob(DATA), *run.glob(CHECKPOINT)}, "metrics": metrics.stat().st_size if metrics.exists() else 0}


def processor_seconds(pid):
    """Returns the processor time of the main thread, which does nearly all of the work; 0 once it has ended."""
    try:
        return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):
        return 0.0


def choose_moment(generator, run, seconds):
    """Returns (processor seconds to let pass, the unfinished file to wait for before that, seconds to wait after it)."""
    if generator.random() < 0.5:
        return generator.uniform(0, seconds), None, 0
    return seconds, CHECKPOINT if (run / "data/train.json").exists() else DATA, generator.uniform(0, 0.004)


def wait(process, run, moment, before):
    """Waits for the moment; returns False if the process ends first."""
    longest, pattern, after = moment
    while process.poll() is None and processor_seconds(process.pid) < longest:
        if pattern and set(run.glob(pattern)) - before["unfinished"]:
            break
        time.sleep(0.0005)
    time.sleep(after)
    return process.poll() is None


def phase(run, before):
    """Returns what a killed process was doing, judged by what it left."""
    now = snapshot(run)
    begun = now["unfinished"] - before["unfinished"]
    if not (run / "data/train.json").exists():
        return "while data is built" if begun or (run / "data").exists() else "before anything is written"
    if begun:
        return "while a checkpoint is written"
    if (run / "summary.json").exists():
        return "at the end"
    return "while training" if now["metrics"] != before["metrics"] else "while starting"


def check_gentle(driver, run, number, status, output):
    """Checks that a signal saves the run, or ends the process before training begins."""
    saved = re.search(r"saved at step (\d+)", output)
    if status in (-number, 0) and not saved:
        return
    if status != 128 + number or not saved or int(saved[1]) not in harness.checkpoints(run):
        driver.fail(f"{number.name}: exit status {status}, {output!r}, checkpoints {harness.checkpoints(run)}")


def one_run(driver, settings, run, seconds, done):
    """Kills one run again and again until it ends by itself; returns the number of kills."""
    kills = 0
    while True:
        before = snapshot(run)
        process = program.start(*harness.train(run, settings))
        number = driver.random.choice(GENTLE) if driver.random.random() < 0.25 else signal.SIGKILL
        moment = choose_moment(driver.random, run, seconds)
        alive = not driver.done(done + kills) and wait(process, run, moment, before)
        if not alive:
            output, errors = process.communicate()
            if process.returncode != 0:
                driver.fail(f"exit status {process.returncode} after {kills} kills: {errors}")
            return kills
        process.send_signal(number)
        output, errors = process.communicate()
        if number == signal.SIGKILL and process.returncode != -number and process.returncode != 0:
            driver.fail(f"SIGKILL: exit status {process.returncode}: {errors}")
        if number in GENTLE:
            check_gentle(driver, run, number, process.returncode, output)
        if process.returncode == 0:
            return kills  # it ended in the same moment
        kills += 1
        driver.tried("kills")
        driver.tried(number.name)
        driver.tried(phase(run, before))


def main():
    with harness.Driver("kills", __doc__, 1000) as driver:
        text = harness.write_corpus(driver.folder / "text", 200)
        settings = {**harness.SMALL, "data.path": text, "train.steps": 40, "checkpoint.every": 2}
        whole = driver.folder / "whole"
        program.run(*harness.train(whole, settings))
        process, seconds = program.start(*harness.train(driver.folder / "timed", settings)), 0.0
        while process.poll() is None:
            seconds = max(seconds, processor_seconds(process.pid))
            time.sleep(0.001)
        process.communicate()
        kills, runs = 0, 0
        while not driver.done(kills):
            run = driver.folder / f"run-{runs}"
            kills += one_run(driver, settings, run, seconds, kills)
            runs += 1
            driver.expect_equal_run(whole, run)


if __name__ == "__main__":
    main()
