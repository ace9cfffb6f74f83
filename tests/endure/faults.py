#!/usr/bin/env python3
"""Makes the disk full, read-only or broken, sets the clock back or starts a second process, at random moments of training runs.

Disk and clock are faults.cpp's, loaded with LD_PRELOAD; the moment is a random one of all calls that change the disk (or read
the clock). A run may fail only with the right status and a message that says what is wrong and where. No checkpoint that was
written may be lost: resumed on a good disk the run ends as one nobody disturbed, bit for bit."""

import json
import re
import shutil
import time

import harness
import program

LIBRARY = program.BUILD / "tests/endure/libprism_faults.so"
DISK = {"full": "the disk is full", "readonly": "Read-only file system", "broken": "Input/output error"}
STATUS = {"full": {1}, "readonly": {1, 2}, "broken": {1}}
KINDS = (*DISK, "clock", "second process")


def environment(fault, folder, count_file):
    return {**program.ENVIRONMENT, "LD_PRELOAD": str(LIBRARY), "PRISM_FAULT": fault, "PRISM_FAULT_FOLDER": str(folder),
            "PRISM_FAULT_COUNT": str(count_file)}  # fmt: skip


class Faults:
    def __init__(self, driver):
        self.driver, self.random = driver, driver.random
        text = harness.write_corpus(driver.folder / "text", 60)
        self.settings = {**harness.SMALL, "data.path": text, "train.steps": 24, "checkpoint.every": 3}
        self.whole = driver.folder / "whole"
        self.calls = {kind: self.count(kind) for kind in ("full", "clock")}
        begin = time.monotonic()
        program.run(*harness.train(self.whole, self.settings))
        self.seconds = time.monotonic() - begin
        driver.result["calls"] = self.calls

    def count(self, kind):
        """Returns the number of calls of an undisturbed run that can fail."""
        count_file, run = self.driver.folder / "count", self.driver.folder / "counted"
        program.run(*harness.train(run, self.settings), env=environment(f"{kind}:{2**60}", run, count_file))
        shutil.rmtree(run)
        return int(count_file.read_text())

    def start(self, run, **options):
        return program.start(*harness.train(run, self.settings), **options)

    def check_end(self, what, run):
        if found := harness.whole_differences(self.whole, run) + harness.leftovers(run):
            self.driver.fail(f"{what}: the run differs in {found}")

    def resume(self, what, run):
        """Resumes without a fault and checks that no checkpoint was lost."""
        record = run / "run.json"
        written = json.loads(record.read_text())["checkpoint"] if record.exists() else None
        process = self.start(run)
        _, errors = process.communicate()
        if process.returncode != 0:
            return self.driver.fail(f"{what}: resuming ended with status {process.returncode}: {errors}")
        resumed = re.search(r"resumed at step (\d+)", errors)
        if written and (not resumed or int(resumed[1]) < int(written[5:])):
            self.driver.fail(f"{what}: {written} was written, but the run went on with: {errors}")
        self.check_end(what, run)

    def disk(self, kind, run):
        times = "" if self.random.random() < 0.5 else ":1"
        what = f"{kind}:{self.random.randint(1, self.calls['full'])}{times}"
        process = self.start(run, env=environment(what, run, "/dev/null"))
        _, errors = process.communicate()
        if process.returncode != 0:
            self.driver.tried(f"{kind}: status {process.returncode}")
            if process.returncode not in STATUS[kind] or DISK[kind] not in errors or str(run) not in errors:
                self.driver.fail(f"{what}: exit status {process.returncode}: {errors}")
        else:
            self.driver.tried(f"{kind}: harmless")
        self.resume(what, run)

    def clock(self, run):
        what = f"clock:{self.random.randint(1, self.calls['clock'])}"
        process = self.start(run, env=environment(what, run, "/dev/null"))
        _, errors = process.communicate()
        if process.returncode != 0:
            return self.driver.fail(f"{what}: exit status {process.returncode}: {errors}")
        self.driver.tried("clock: finished")
        if any(line[key] < 0 for line in program.json_lines(run / "metrics.jsonl") for key in program.TIMINGS):
            self.driver.fail(f"{what}: a time is negative")
        self.check_end(what, run)

    def second_process(self, run):
        """Starts two processes: one must end the run, the other must say that the folder is in use or find the run ended."""
        delay = self.random.uniform(0, self.seconds)
        first = self.start(run)
        time.sleep(delay)
        second = self.start(run)
        ends = [(process.communicate()[1], process.returncode) for process in (first, second)]
        for errors, status in ends:
            if status != 0 and (status != 2 or "another process is writing to this folder" not in errors):
                self.driver.fail(f"second process after {delay:.3f} s: exit status {status}: {errors}")
        statuses = sorted(status for _, status in ends)
        if statuses == [2, 2]:
            self.driver.fail(f"second process after {delay:.3f} s: both gave up")
        self.driver.tried("second process: refused" if statuses == [0, 2] else "second process: the run had ended")
        self.check_end("second process", run)

    def __call__(self, number):
        run = self.driver.folder / f"run-{number}"
        kind = KINDS[number % len(KINDS)]
        if kind in DISK:
            self.disk(kind, run)
        else:
            {"clock": self.clock, "second process": self.second_process}[kind](run)
        shutil.rmtree(run, ignore_errors=True)


def main():
    with harness.Driver("faults", __doc__, 500) as driver:
        faults, done = Faults(driver), 0
        while not driver.done(done):
            faults(done)
            driver.tried("faults")
            done += 1


if __name__ == "__main__":
    main()
