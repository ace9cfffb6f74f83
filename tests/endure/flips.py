#!/usr/bin/env python3
"""Flips single bits of checkpoints, token shards and safetensors: each flip is noticed or changes nothing.

All of them go through the program's own readers (prism_flips). One in a hundred more goes through the program itself: a resumed
run must end as if nothing had happened, and a damaged model is refused with status 2."""

import json
import shutil
import subprocess

import harness
import program

TOOL = program.BUILD / "tests/endure/prism_flips"


def flip(generator, path):
    data = bytearray(path.read_bytes())
    place = generator.randrange(8 * len(data))
    data[place // 8] ^= 1 << place % 8
    path.write_bytes(data)
    return f"{path.name}, bit {place}"


def resume_damaged(driver, settings, whole, half):
    """Resumes a run that stopped half way, with a bit flipped in its newest checkpoint or shards; it must end like the whole one."""
    run = driver.folder / "damaged"
    shutil.copytree(half, run)
    newest = harness.checkpoint(run, harness.checkpoints(run)[-1])
    files = [*newest.iterdir()] if driver.random.random() < 0.5 else [*(run / "data").glob("*.bin"), *(run / "data").glob("*n.json")]
    where = flip(driver.random, driver.random.choice(sorted(files)))
    process = program.start(*harness.train(run, settings))
    _, errors = process.communicate()
    if process.returncode != 0:
        driver.fail(f"{where}: exit status {process.returncode}: {errors}")
    elif found := harness.whole_differences(whole, run):
        driver.fail(f"{where}: the resumed run differs in {found}")
    driver.tried("resumed runs")
    shutil.rmtree(run)


def read_damaged(driver, model):
    """Runs `prism generate` with a bit of the weights flipped."""

    def generate(folder):
        process = program.start("generate", folder, "--prompt", "the cat", "--tokens", 4, "--temperature", 0)
        return *process.communicate(), process.returncode

    damaged = driver.folder / "damaged"
    shutil.copytree(model, damaged)
    where = flip(driver.random, damaged / "model.safetensors")
    output, errors, status = generate(damaged)
    refused = status == 2 and str(damaged / "model.safetensors") in errors
    if not refused and (status != 0 or output != generate(model)[0]):
        driver.fail(f"{where}: exit status {status}: {errors}")
    driver.tried("generated texts")
    shutil.rmtree(damaged)


def main():
    with harness.Driver("flips", __doc__, 10000) as driver:
        text = harness.write_corpus(driver.folder / "text", 40)
        settings = {**harness.SMALL, "data.path": text, "train.steps": 24, "checkpoint.every": 6}
        whole, half, model = driver.folder / "whole", driver.folder / "half", driver.folder / "model"
        program.run(*harness.train(whole, settings))
        shutil.copytree(whole, half)
        shutil.rmtree(harness.checkpoint(half, 24))
        program.run("export", whole, "--out", model)
        done, rounds = 0, 0
        while not driver.done(done):
            batch = min(500, driver.options.count - done)
            shown = subprocess.run([TOOL, half, model, str(batch), str(driver.random.getrandbits(32))], capture_output=True, text=True)
            if shown.returncode == 2 or not shown.stdout:
                raise SystemExit(f"{TOOL.name} ended with status {shown.returncode}: {shown.stderr}")
            result = json.loads(shown.stdout)
            for what, count in result["tried"].items():
                driver.tried(what, count)
            for failure in result["failures"]:
                driver.fail(failure)
            driver.tried("flips", batch)
            done += batch
            while rounds < done // 200:
                resume_damaged(driver, settings, whole, half)
                read_damaged(driver, model)
                rounds += 1


if __name__ == "__main__":
    main()
