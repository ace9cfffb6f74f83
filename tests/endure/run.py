#!/usr/bin/env python3
"""Runs a soak for the given minutes (MINUTES of `make endure`) and, beside it, kills, deaths of single processes, faults, bit flips and NaN in turn.

On a GPU it runs only the soak. Each writes its results to OUT/NAME.json."""

import argparse
import pathlib
import subprocess
import sys
import time

from harness import program

import mpi  # isort: skip; harness makes it importable

HERE = pathlib.Path(__file__).parent
SHARES = {"kills": 0.4, "ranks": 0.1, "faults": 0.3, "flips": 0.1}  # of the time
NO_END = 10**9


def driver(name, minutes, out, *more):
    return [sys.executable, str(HERE / f"{name}.py"), "--minutes", str(minutes), "--json", str(out / f"{name}.json"), *map(str, more)]


def inject(minutes):
    """Injects NaN and infinity into every parameter, at other places and steps each time."""
    tests, end, rounds = program.BUILD / "tests/train/test_train", time.monotonic() + 60 * minutes, 0
    while time.monotonic() < end:
        shown = subprocess.run([tests, "--gtest_filter=Injection.*", "--gtest_repeat=5", "--gtest_brief=1"], env=program.ENVIRONMENT)
        if shown.returncode != 0:
            return 1
        rounds += 5
    print(f"injections: {rounds} rounds of NaN and infinity in every parameter; 0 failures", flush=True)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/endure"))
    options = parser.parse_args()
    soak = subprocess.Popen(driver("soak", options.minutes, options.out, "--device", options.device))
    statuses = []
    if options.device == "cpu":
        for name, share in SHARES.items():
            if name == "ranks" and not mpi.is_available():
                continue
            statuses.append(subprocess.run(driver(name, share * options.minutes, options.out, "--count", NO_END)).returncode)
        statuses.append(inject(0.05 * options.minutes))
    statuses.append(soak.wait())
    sys.exit(1 if any(statuses) else 0)


if __name__ == "__main__":
    main()
