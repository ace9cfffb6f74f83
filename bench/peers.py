"""One optimizer step on a GPU: prism_optim beside the peers that are installed, on all hidden matrices of two models, in one run.

`python bench/peers.py --json bench/results/h200.json --page peers.html` times whole steps (gradients given, float32 weights), eager and
replayed from a CUDA graph where the optimizer allows it. Figures are medians; compare them only within one run.
"""

import argparse
import datetime
import importlib
import json
import pathlib
import statistics

import prism_optim
import torch

MODELS = {
    "22m": {"layers": 8, "width": 512, "kv": 128, "mlp": 1408, "vocab": 16384},
    "1b": {"layers": 24, "width": 2048, "kv": 512, "mlp": 5632, "vocab": 16384},
}


def shapes_of(model):
    """Hidden matrices as (rows, columns), q o k v gate up down of every layer."""
    width, kv, mlp = model["width"], model["kv"], model["mlp"]
    layer = [(width, width)] * 2 + [(kv, width)] * 2 + [(mlp, width)] * 2 + [(width, mlp)]
    return layer * model["layers"]


def rest_of(model):
    """What AdamW takes: the embedding, norms and biases."""
    layer = [(model["width"],)] * 2 + [(model["width"],), (model["kv"],), (model["kv"],)]
    return [(model["vocab"], model["width"]), (model["width"],)] + layer * model["layers"]


def make_params(shapes):
    make = torch.Generator("cuda").manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(shape, generator=make, device="cuda") * 0.02) for shape in shapes]
    for p in params:
        p.grad = torch.randn(p.shape, generator=make, device="cuda")
    return params


JORDAN = (3.4445, -4.7750, 2.0315)


@torch.compile(dynamic=False)
def newton_schulz(X):
    X = X.bfloat16()
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    tall = X.shape[-2] > X.shape[-1]
    X = X.mT if tall else X
    a, b, c = JORDAN
    for _ in range(5):
        A = X @ X.mT
        X = a * X + (b * A + c * A @ A) @ X
    return X.mT if tall else X


class BatchedMuon:
    """Muon over stacks of equally shaped matrices with a compiled Newton-Schulz iteration, as fast implementations in plain PyTorch do it."""

    def __init__(self, params, lr=0.02, momentum=0.95):
        self.lr, self.momentum = lr, momentum
        self.groups = {}
        for p in params:
            self.groups.setdefault(tuple(p.shape), []).append(p)
        self.buffers = {shape: [torch.zeros_like(p) for p in group] for shape, group in self.groups.items()}

    @torch.no_grad()
    def step(self):
        for shape, group in self.groups.items():
            gradients, buffers = [p.grad for p in group], self.buffers[shape]
            torch._foreach_lerp_(buffers, gradients, 1 - self.momentum)
            signal = torch._foreach_lerp(gradients, buffers, self.momentum)
            updates = newton_schulz(torch.stack(signal)).unbind()
            torch._foreach_add_(group, [u.to(p.dtype) for u, p in zip(updates, group, strict=True)], alpha=-self.lr * 0.2 * max(shape) ** 0.5)


def dion_muon(params):
    return importlib.import_module("dion").Muon(params, lr=0.02, use_triton=True)


def gram_muon(params):
    return importlib.import_module("gram_newton_schulz").Muon(params, lr=0.02)


OURS = {
    "prism": lambda params: prism_optim.Prism(params, lr=0.02, coefficients="minimax9", capturable=True),
    "prism_jordan": lambda params: prism_optim.Prism(params, lr=0.02, capturable=True),
    "prism_ema": lambda params: prism_optim.Prism(params, lr=0.02, coefficients="minimax9", covariance="ema", capturable=True),
    "muon": lambda params: prism_optim.Muon(params, lr=0.02, coefficients="minimax9", capturable=True),
    "muon_jordan": lambda params: prism_optim.Muon(params, lr=0.02, capturable=True),
    "adamw": lambda params: prism_optim.AdamW(params, lr=0.005, capturable=True),
}
PEERS = {
    "torch_muon": lambda params: torch.optim.Muon(params, lr=0.02, weight_decay=0, adjust_lr_fn="match_rms_adamw"),
    "torch_adamw_fused": lambda params: torch.optim.AdamW(params, lr=0.005, fused=True, capturable=True),
    "batched_muon_compiled": BatchedMuon,
    "dion_muon": dion_muon,
    "gram_newton_schulz": gram_muon,
}


def timed(function, repeats):
    """Median milliseconds of one call, each between two events, and calls not waited for in between."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for start, end in events:
        start.record()
        function()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events)


def captured(optimizer):
    """The step as a CUDA graph; None where it cannot be captured."""
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(stream):
            for _ in range(3):
                optimizer.step()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            optimizer.step()
    except Exception as problem:  # whatever a peer raises in capture
        print(f"    not captured: {str(problem).splitlines()[0][:100]}")
        return None
    return graph


def measure(make, params, repeats):
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    optimizer = make(params)
    for _ in range(3):
        optimizer.step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    result = {"eager_ms": timed(optimizer.step, repeats)}
    result["memory_mib"] = (torch.cuda.max_memory_allocated() - before) / 2**20
    graph = captured(optimizer)
    if graph is not None:
        graph.replay()
        result["captured_ms"] = timed(graph.replay, repeats)
    return result


def flops_of(shapes, name):
    """The products of a step on 16-bit operands, symmetric ones at half cost, in units of n³; n the shorter side, α the ratio of the sides."""
    iteration = {"prism": 17, "prism_ema": 17, "muon": 17, "prism_jordan": 23, "muon_jordan": 23}[name]
    gram = 4 if name.startswith("prism") else 3  # and T·Q
    return sum((iteration + gram * max(s) / min(s)) * min(s) ** 3 for s in shapes)


def bytes_of(shapes):
    """G read, M and W read and written."""
    return sum(20 * m * n for m, n in shapes)


def write_results(results, arguments):
    if arguments.page:
        template = pathlib.Path(__file__).with_name("peers.html").read_text()
        facts = {"title": f"{torch.cuda.get_device_name()}, torch {torch.__version__}", "results": results}
        arguments.page.write_text(template.replace("null /* results */", json.dumps(facts)))
    if arguments.json:
        step_ms = {m: {n: round(min(v for k, v in r.items() if k.endswith("_ms")), 4) for n, r in rs.items()} for m, rs in results.items()}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "date": str(datetime.date.today())}
        arguments.json.write_text(json.dumps(facts | {"step_ms": step_ms, "details": results}, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--only", nargs="+", help="names of optimizers")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--page", type=pathlib.Path, help="an HTML page with bars")
    arguments = parser.parse_args()

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}; medians of {arguments.repeats} steps, ms")
    results = {}
    for model_name in arguments.models:
        model = MODELS[model_name]
        shapes = shapes_of(model)
        params, rest = make_params(shapes), make_params(rest_of(model))
        print(f"\n{model_name}: {len(shapes)} matrices, {sum(m * n for m, n in shapes) / 1e6:.0f} M parameters")
        print(f"{'':26}{'eager':>9}{'captured':>10}{'TFLOP/s':>9}{'of floor':>9}{'GB/s':>8}{'MiB':>9}")
        lines = {**OURS, **PEERS, "adamw_rest": OURS["adamw"], "torch_adamw_fused_rest": PEERS["torch_adamw_fused"]}
        for name, make in lines.items():
            if arguments.only and name not in arguments.only:
                continue
            try:
                result = measure(make, rest if name.endswith("_rest") else params, arguments.repeats)
            except ImportError as missing:
                print(f"{name:26} not installed ({missing.name})")
                continue
            results.setdefault(model_name, {})[name] = result
            best = min(v for k, v in result.items() if k.endswith("_ms"))
            captured_text = f"{result['captured_ms']:10.3f}" if "captured_ms" in result else f"{'-':>10}"
            line = f"{name:26}{result['eager_ms']:9.3f}{captured_text}"
            moved = bytes_of(shapes)
            if name.split("_rest")[0] in OURS and "adamw" not in name:
                work = flops_of(shapes, name)
                floor = (work / 790e12 + moved / 4.3e12) * 1e3
                result |= {"tflops": work / best / 1e9, "share_of_floor": floor / best}
                line += f"{result['tflops']:9.0f}{result['share_of_floor']:9.2f}{moved / best / 1e6:8.0f}"
            else:
                line += f"{'':9}{'':9}{'':8}"
            print(line + f"{result['memory_mib']:9.0f}", flush=True)
            torch.cuda.empty_cache()
        del params, rest
        torch.cuda.empty_cache()
        write_results(results, arguments)


if __name__ == "__main__":
    main()
