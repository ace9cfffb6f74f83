"""One whole step over the hidden matrices of the 22M model: every optimizer here beside torch's Muon and AdamW.

Rounds alternate between the C++ benchmark and torch in this process, so that a change of the machine's speed meets both; the table shows
medians over rounds and ratios to torch.optim.Muon.
"""

import argparse
import json
import pathlib
import platform
import statistics
import subprocess
import time

import torch

SHAPES = [(512, 512), (128, 512), (128, 512), (512, 512), (1408, 512), (1408, 512), (512, 1408)] * 8


def torch_optimizers():
    def muon(params):
        return torch.optim.Muon(params, lr=0.02, weight_decay=0, adjust_lr_fn="match_rms_adamw")

    return {
        "torch.optim.Muon": muon,
        "torch.optim.AdamW": lambda params: torch.optim.AdamW(params, lr=0.02, foreach=True),
        "torch.optim.AdamW(fused)": lambda params: torch.optim.AdamW(params, lr=0.02, fused=True),
    }


def time_torch(make, seconds):
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(shape) * 0.02) for shape in SHAPES]
    for p in params:
        p.grad = torch.randn_like(p)
    optimizer = make(params)
    optimizer.step()
    times = []
    while sum(times) < seconds or len(times) < 3:
        start = time.perf_counter()
        optimizer.step()
        times.append(time.perf_counter() - start)
    state = sum(t.nbytes for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t) and t.dim() > 0)
    return 1e3 * statistics.median(times), state


def time_ours(program, seconds, names):
    command = [program, f"--benchmark_min_time={seconds}", "--benchmark_format=json", f"--benchmark_filter={names}"]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    rows = json.loads(result.stdout)["benchmarks"]
    return {r["name"].split("/")[0]: (r["real_time"], r["state_bytes"]) for r in rows}


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="the compiled optimizer_step")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each optimizer and round")
    arguments = parser.parse_args()

    rows = {}
    for turn in range(arguments.rounds):
        measured = {name: time_torch(make, arguments.seconds) for name, make in torch_optimizers().items()}
        measured |= time_ours(arguments.program, arguments.seconds, "." if turn == 0 else "-shampoo")  # one round of that takes a minute
        for name, (milliseconds, state) in measured.items():
            rows.setdefault(name, ([], state))[0].append(milliseconds)
    medians = {name: (statistics.median(times), state) for name, (times, state) in rows.items()}
    reference = medians["torch.optim.Muon"][0]
    print(f"One step over 56 matrices of the 22M model, float32; {cpu_name()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"{'optimizer':26}{'ms':>9}{'/ torch Muon':>14}{'state MiB':>11}")
    for name, (milliseconds, state) in sorted(medians.items(), key=lambda item: item[1][0]):
        print(f"{name:26}{milliseconds:9.1f}{milliseconds / reference:14.2f}{state / 2**20:11.1f}")


if __name__ == "__main__":
    main()
