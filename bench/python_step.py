"""One whole step from Python over the hidden matrices of the 22M model: prism_optim beside torch.optim.Muon and AdamW, in one process.

Rounds go through all optimizers in turn, so that a change of the machine's speed meets every one; the table shows medians over rounds.
`--device cuda` times on the GPU.
"""

import argparse
import platform
import statistics
import time

import prism_optim
import torch
from optimizer_step import SHAPES, cpu_name

OPTIMIZERS = {
    "torch.optim.Muon": lambda params: torch.optim.Muon(params, lr=0.02, weight_decay=0, adjust_lr_fn="match_rms_adamw"),
    "torch.optim.AdamW": lambda params: torch.optim.AdamW(params, lr=0.005),
    "torch.optim.AdamW(fused)": lambda params: torch.optim.AdamW(params, lr=0.005, fused=True),
    "prism_optim.Prism": lambda params: prism_optim.Prism(params, lr=0.02),
    "prism_optim.Prism(ema)": lambda params: prism_optim.Prism(params, lr=0.02, covariance="ema"),
    "prism_optim.Muon": lambda params: prism_optim.Muon(params, lr=0.02),
    "prism_optim.AdamW": lambda params: prism_optim.AdamW(params, lr=0.005),
}


def make(factory, device):
    torch.manual_seed(0)
    params = [torch.nn.Parameter((torch.randn(shape) * 0.02).to(device)) for shape in SHAPES]
    for p in params:
        p.grad = torch.randn_like(p)
    return factory(params)


def step_ms(optimizer, device):
    start = time.perf_counter()
    optimizer.step()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    arguments = parser.parse_args()

    optimizers = {name: make(factory, arguments.device) for name, factory in OPTIMIZERS.items()}
    times = {name: [] for name in optimizers}
    for round_number in range(arguments.rounds + 1):  # the first warms up
        for name, optimizer in optimizers.items():
            elapsed = step_ms(optimizer, arguments.device)
            if round_number > 0:
                times[name].append(elapsed)
    medians = {name: statistics.median(values) for name, values in times.items()}
    where = torch.cuda.get_device_name() if arguments.device == "cuda" else f"{cpu_name()}, {torch.get_num_threads()} threads"
    print(f"One step from Python over 56 matrices of the 22M model, float32; {where}, torch {torch.__version__}, Python {platform.python_version()}")
    print(f"{'optimizer':26}{'ms':>9}{'/ torch Muon':>14}")
    for name, median in sorted(medians.items(), key=lambda item: item[1]):
        print(f"{name:26}{median:9.1f}{median / medians['torch.optim.Muon']:14.2f}")


if __name__ == "__main__":
    main()
