#!/usr/bin/env python3
"""Trains for many minutes in two processes side by side: one runs uninterrupted, the other is killed (SIGKILL) and resumed.

Both begin with the same weights and data. When the first has trained long enough it is stopped at its step N, and the second
goes on to N: weights, optimizer state and metrics must then be equal bit for bit. Host and device memory of a process after its
first minute, once it has evaluated and saved, and at its end must agree within 1 %. The allocator keeps freed blocks for a
while, a different number after each step, so each value is the lowest in one cycle: the steps from one evaluation to the next. A
leak raises it.

Only long lives are judged: those of at least ten cycles, and of at least half the steps of the uninterrupted process. The memory
of a young process still settles, in either direction: lives of two minutes changed by -2.5 to +4.7 % while the uninterrupted
process beside them changed by nothing. Both run the same code, so a leak shows first in the longer life.

  tests/endure/soak.py --device cuda --minutes 9.4 --text corpus.txt --tokenizer tokenizer.json --json soak.json

Needs the built program and Python, nothing else. Without --text it makes its own; without --tokenizer it trains one on the
text. PRISM_BUILD_DIR names the build folder (default build/release)."""

import json
import pathlib
import shutil
import signal
import subprocess
import time

import harness
import program

COMMON = {"schedule.kind": "constant", "schedule.warmup": 20, "train.steps": 10**7, "train.deterministic": "true", "train.seed": 7,
          "checkpoint.keep": 8, "metrics.spectra_every": 0, "metrics.tensorboard": "false"}  # fmt: skip
MODELS = {
    "cpu": {"model.preset": "demo", "model.layers": 4, "model.width": 128, "model.heads": 4, "model.kv_heads": 2, "model.mlp": 256,
            "train.batch": 8, "train.context": 64, "train.eval_every": 200, "train.eval_sequences": 16, "checkpoint.every": 50,
            "run.threads": 1},
    "cuda": {"model.preset": "22m", "train.batch": 32, "train.context": 1024, "train.eval_every": 500, "train.eval_sequences": 32,
             "checkpoint.every": 200},
}  # fmt: skip
TOLERANCE = 0.01
SETTLE = 60  # seconds after which a process's memory must stay as it is, once it has evaluated and saved
LONG = 10  # cycles in which a leak can be told from memory that settles
MEGABYTE = 2**20


def prepare(options, folder):
    """Makes the token shards that both processes read."""
    text = options.text or harness.write_corpus(folder / "text", 4000 if options.device == "cuda" else 400)
    tokenizer = options.tokenizer
    if tokenizer is None:
        tokenizer = folder / "tokenizer.json"
        program.run("tokenizer", "train", text, "--vocab", 4096 if options.text else 300, "--out", tokenizer)
    program.run("data", "build", text, "--tokenizer", tokenizer, "--held-out", 0.05, "--out", folder / "shards")
    return folder / "shards"


def host_bytes(pid):
    """Returns the memory of the process without the pages of mapped files."""
    values = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(values[key].split()[0]) * 1024 for key in ("RssAnon", "RssShmem"))


def nvidia_smi(query):
    shown = subprocess.run(["nvidia-smi", query, "--format=csv,noheader,nounits"], capture_output=True, text=True)
    return [line.split(",") for line in shown.stdout.splitlines()] if shown.returncode == 0 else []


def device_bytes(pid):
    """Returns the memory that the driver lists for the process, or None if it lists none, as in some containers."""
    for row in nvidia_smi("--query-compute-apps=pid,used_memory"):
        if row[0].strip() == str(pid) and row[1].strip().isdigit():
            return int(row[1]) * MEGABYTE
    return None


def card_bytes():
    rows = nvidia_smi("--query-gpu=memory.used")
    return int(rows[0][0]) * MEGABYTE if rows else None


def growth(samples, cycle, longest=0):
    """Returns (lowest bytes in the first cycle of steps, in the last, growth) of samples (step, bytes). Returns None if the life was too
    short to judge beside one of `longest` steps."""
    samples = [(step, size) for step, size in samples if size is not None]
    if not samples or steps_of(samples) < max(LONG * cycle, longest / 2):
        return None
    first = min(size for step, size in samples if step < samples[0][0] + cycle)
    last = min(size for step, size in samples if step >= samples[-1][0] - cycle)
    return first, last, last / first - 1


def steps_of(samples):
    return samples[-1][0] - samples[0][0] if samples else 0


class Process:
    """One life of a training process, and its memory over time."""

    def __init__(self, run, settings, log):
        self.run, self.begin = run, time.monotonic()
        self.cycle = max(int(settings["train.eval_every"]), int(settings["checkpoint.every"]))
        self.first_step, self.end = last_step(run), int(settings["train.steps"])
        self.process = program.start(*harness.train(run, settings), stdout=log, stderr=subprocess.STDOUT)
        self.samples = []  # (step, host bytes, device bytes or None), once settled

    def age(self):
        return time.monotonic() - self.begin

    def alive(self):
        return self.process.poll() is None

    def sample(self, on_gpu):
        if self.age() < SETTLE:
            return
        try:
            sizes = host_bytes(self.process.pid), device_bytes(self.process.pid) if on_gpu else None
        except (OSError, KeyError):
            return  # it just ended
        step = last_step(self.run)
        if self.first_step + self.cycle < step < self.end:  # after its last step it frees its memory
            self.samples.append((step, *sizes))

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        return self.process.wait()

    def growth(self, column, longest=0):
        """Of host (0) or device (1) memory."""
        return growth([(step, sizes[column]) for step, *sizes in self.samples], self.cycle, longest)


def last_step(run):
    """Returns the last step in metrics.jsonl, which may be growing."""
    path = run / "metrics.jsonl"
    if not path.exists():
        return 0
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 16384))
        lines = file.read().split(b"\n")[:-1]
    return json.loads(lines[-1])["step"] if lines and lines[-1].startswith(b"{") else 0


def go_back(run, step):
    """Removes the checkpoints after the step, as if a run that is ahead had been killed earlier."""
    for later in harness.checkpoints(run):
        if later > step:
            shutil.rmtree(harness.checkpoint(run, later))


class Soak:
    def __init__(self, driver, settings):
        self.driver, self.options, self.settings = driver, driver.options, settings
        self.on_gpu = self.options.device == "cuda"
        self.limit = driver.begin + 60 * min(self.options.minutes, 60)
        self.log = open(driver.folder / "log", "w")
        self.start_up = 0.0
        self.alone, self.both = [], []  # bytes of the card with the first process alone, and with both settled
        self.killed_lives = []

    def start(self, name, **changes):
        return Process(self.driver.folder / name, {**self.settings, **changes}, self.log)

    def time_to_catch_up(self, first):
        """Returns the seconds that the killed run needs to reach the step of the uninterrupted one."""
        ahead, behind = last_step(first.run), harness.checkpoints(self.driver.folder / "killed")
        rate = ahead / first.age()
        return self.start_up + max(0, ahead - (behind[-1] if behind else 0)) / max(rate, 1e-9)

    def kill_second(self, second):
        if self.on_gpu and second.age() > SETTLE / 2:
            self.both.append(card_bytes())
        if second.kill() != -signal.SIGKILL:
            self.driver.fail(f"the process to be killed ended by itself:\n{self.tail()}")
        self.killed_lives.append(second)
        self.driver.tried("kills")
        if self.on_gpu:
            time.sleep(1)
            self.alone.append(card_bytes())

    def side_by_side(self):
        """Trains in both processes until only the time to catch up is left; returns the first process, about to be stopped."""
        first, second = self.start("whole"), self.start("killed")
        span = 0.65 * (self.limit - time.monotonic())
        jitter = [self.driver.random.uniform(-0.2, 0.2) for _ in range(self.options.kills - 1)]
        moments = [first.begin + span * (i + 1 + jitter[i]) / self.options.kills for i in range(self.options.kills - 1)]
        while True:
            time.sleep(0.5 if not self.on_gpu else 1)
            if not first.alive() or not second.alive():
                self.driver.fail(f"a process ended by itself:\n{self.tail()}")
                break
            if not self.start_up and last_step(first.run) > 0:
                self.start_up = first.age()
            for process in (first, second):
                process.sample(self.on_gpu)
            if moments and time.monotonic() >= moments[0] and harness.checkpoints(second.run):
                moments.pop(0)
                self.kill_second(second)
                second = self.start("killed")
            if self.limit - time.monotonic() - self.options.reserve < 1.3 * self.time_to_catch_up(first):
                break
        if second.alive():
            self.kill_second(second)
        if moments:
            self.driver.fail(f"only {len(self.killed_lives)} of {self.options.kills} kills fit into the time")
        return first

    def catch_up(self, step):
        """Lets the killed run go on to the step where the other was stopped."""
        go_back(self.driver.folder / "killed", step)
        last = self.start("killed", **{"train.steps": step})
        while last.alive() and time.monotonic() < self.limit:
            time.sleep(0.5)
            last.sample(self.on_gpu)
        if last.alive():
            self.driver.fail(f"the killed run is at step {last_step(last.run)} of {step} when the time is over")
            last.kill(signal.SIGTERM)
        elif last.process.returncode != 0:
            self.driver.fail(f"the killed run ended with status {last.process.returncode}:\n{self.tail()}")
        self.killed_lives.append(last)

    def tail(self):
        self.log.flush()
        return "".join((self.driver.folder / "log").read_text().splitlines(True)[-20:])

    def __call__(self):
        first = self.side_by_side()
        self.stopped = first.age()
        status = first.kill(signal.SIGTERM) if first.alive() else first.process.returncode
        if status != 128 + signal.SIGTERM:
            self.driver.fail(f"the uninterrupted run ended with status {status}:\n{self.tail()}")
        step = harness.checkpoints(first.run)[-1]
        self.catch_up(step)
        self.compare(first, step)
        self.judge_memory(first)

    def compare(self, first, step):
        killed = self.driver.folder / "killed"
        common = sorted(set(harness.checkpoints(first.run)) & set(harness.checkpoints(killed)))
        if not common:
            return self.driver.fail("no step has a checkpoint of both runs")
        found = harness.differences(first.run, killed, common[-1])
        if found:
            self.driver.fail(f"at step {common[-1]} the runs differ in {found}")
        summaries = [json.loads((run / "summary.json").read_text()) for run in (first.run, killed)]
        self.driver.result.update({"steps": step, "compared_at_step": common[-1], "bit_equal": not found, 
                                   "final_weights": [summary["final_weights"] for summary in summaries],
                                   "uninterrupted_s": round(self.stopped, 1), "trained_s": round(summaries[0]["timing"]["seconds"], 1),
                                   "machine": summaries[0]["machine"]})  # fmt: skip
        self.driver.tried("steps", common[-1])

    def judge_memory(self, first):
        memory = {}
        for column, kind in enumerate(("host", "device")):
            memory[f"uninterrupted {kind}"] = [first.growth(column)]
            memory[f"killed {kind}"] = [life.growth(column, steps_of(first.samples)) for life in self.killed_lives]
        for what, values in (("card, uninterrupted process alone", self.alone), ("card, both processes", self.both)):
            if len(values) >= 2 and None not in values:
                memory[what] = [(values[0], values[-1], values[-1] / values[0] - 1)]
        memory = {what: [value for value in values if value] for what, values in memory.items()}
        self.driver.result["memory"] = memory
        for what, values in memory.items():
            for before, after, growth in values:
                if abs(growth) > TOLERANCE:
                    self.driver.fail(f"memory, {what}: {before / 1e6:.1f} MB once settled, {after / 1e6:.1f} MB at the end")


def show(result):
    print(f"soak: {result.get('steps', 0):,} steps, uninterrupted for {result.get('uninterrupted_s', 0)} s; killed and resumed "
          f"{result['tried'].get('kills', 0)} times; compared at step {result.get('compared_at_step', 0):,}: "
          f"{'equal bit for bit' if result.get('bit_equal') else 'DIFFERENT'}")  # fmt: skip
    if not result.get("memory", {}).get("uninterrupted host"):
        print(f"  memory: not judged, no process lived long enough")
    for what, values in result.get("memory", {}).items():
        for before, after, growth in values:
            print(f"  {what}: {before / 1e6:,.1f} MB -> {after / 1e6:,.1f} MB ({100 * growth:+.2f} %)")


def main():
    driver = harness.Driver("soak", __doc__, 1)
    add = driver.parser.add_argument
    add("--device", choices=MODELS, default="cpu")
    add("--text", type=pathlib.Path, help="file or folder of text to train on")
    add("--tokenizer", type=pathlib.Path, help="tokenizer.json for it")
    add("--kills", type=int, help="times to kill one of the runs (default 6, or 2 if there are less than five minutes)")
    add("--reserve", type=float, default=20, help="seconds left for saving and comparing (default 20)")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of both runs")
    add("--keep-log", type=pathlib.Path, help="copy what the processes printed to this file")
    with driver:
        options = driver.options
        options.kills = options.kills or (6 if options.minutes >= 5 else 2)
        shards = prepare(options, driver.folder)
        settings = {**COMMON, **MODELS[options.device], "data.path": shards, "run.device": options.device}
        settings.update(setting.split("=", 1) for setting in options.set)
        Soak(driver, settings)()
        show(driver.result)
        if options.keep_log:
            shutil.copy(driver.folder / "log", options.keep_log)


if __name__ == "__main__":
    main()
