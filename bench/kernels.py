"""Where the time of one PRISM step goes: a roofline table of its kernels, from torch's profiler. `python bench/kernels.py [models …]`.

Kernels begin before the one in front of them has ended, so a kernel's time is the distance from its beginning to the next one's.
"""

import sys
from collections import defaultdict

import torch
from peers import MODELS, OURS, make_params, shapes_of
from torch.profiler import ProfilerActivity, profile

TENSOR, MEMORY = 790e12, 4.3e12  # FLOP/s of fp16 products and bytes/s, measured on one H200

# The products of minimax9's iteration and their FLOP in units of n³, symmetric results at half cost.
ITERATION = [
    ("S = A² + pA + q, 1", 1), ("Z = c₄S² + …, 1", 1), ("V = ZR, two halves, 1", 4), ("R = VZ, two halves, 1", 2),
    ("S, 2", 1), ("Z, 2", 1), ("Q = QZ, 2", 1), ("V, 2", 1), ("R, 2", 1), ("S, 3", 1), ("Z, 3", 1), ("Q = QZ, 3", 2),
]  # fmt: skip


def events_of(optimizer):
    for _ in range(3):
        optimizer.step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        optimizer.step()
        torch.cuda.synchronize()
    events = [e for e in record.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    return sorted(events, key=lambda e: e.time_range.start)


def labels_of(names):
    """What each kernel does, by its place after the elementwise ones."""
    labels, position = [], 0
    while position < len(names):
        rest = names[position:]
        run = next((i for i, name in enumerate(rest) if "product_kernel" not in name), len(rest))  # products of one chunk
        if run == 0:
            labels.append(next((word for word in ("measure", "factor", "advance") if word in rest[0]), rest[0]))
        updates = sum("(Result)2" in name for name in rest[:run])
        grams = run - updates - len(ITERATION)
        labels += (["Gram"] * grams + [name for name, _ in ITERATION] + ["W ← … − lr·TQ"] * updates) if run else []
        position += max(run, 1)
    return labels


def work_of(shapes):
    """FLOP and least bytes of each label."""
    sides = [(min(s), max(s)) for s in shapes]
    cubes, elements = sum(n**3 for n, _ in sides), sum(m * n for m, n in shapes)
    squares = sum(n * n for n, _ in sides)
    work = {
        "measure": (0, 8 * elements),
        "advance": (0, 16 * elements),
        "factor": (0, 0),
        "Gram": (2 * sum(m * n * n for n, m in sides), 4 * elements + 4 * squares),
        "W ← … − lr·TQ": (2 * sum(m * n * n for n, m in sides), 10 * elements + 2 * squares),
    }
    return work | {name: (units * cubes, 6 * squares) for name, units in ITERATION}


def main():
    for model in sys.argv[1:] or list(MODELS):
        shapes = shapes_of(MODELS[model])
        events = events_of(OURS["prism"](make_params(shapes)))
        starts = [e.time_range.start for e in events] + [events[-1].time_range.end]
        times = defaultdict(float)
        for label, start, end in zip(labels_of([e.name for e in events]), starts, starts[1:], strict=False):
            times[label] += end - start
        total, work = sum(times.values()), work_of(shapes)
        print(f"\n{model}: {total / 1e3:.3f} ms, {len(events)} kernels\n")
        print("| kernel | ms | of the step | bound by | TFLOP/s | GB/s | share of its bound |\n|---|---|---|---|---|---|---|")
        for label, us in times.items():
            flop, moved = work.get(label, (0, 0))
            tensor, memory = flop / TENSOR * 1e6, moved / MEMORY * 1e6
            bound = "launch" if max(tensor, memory) == 0 else "tensor cores" if tensor > memory else "memory"
            print(
                f"| {label} | {us / 1e3:.3f} | {us / total:.0%} | {bound} | {flop / us / 1e6:.0f} | {moved / us / 1e3:.0f} | "
                f"{max(tensor, memory) / us:.0%} |"
            )
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
