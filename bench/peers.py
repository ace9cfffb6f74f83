"""Times optimizer steps or training steps of Prism and of the installed peers in one run.

`python bench/peers.py [optimizer] [options]` and `python bench/peers.py train [options]` take the options of `prism bench optimizer` and
`prism bench train` (--help lists them). Those commands measure Prism, print the table, and ask this script for the peers:
  optimizer   prism_optim from Python, torch's optimizers, and on a GPU Muon with a compiled Newton-Schulz iteration, `dion` with and
              without its own CUDA graph, and `gram_newton_schulz`, which compiles its iteration, with its kernels and with torch's
              products; eager and, on a GPU, replayed from a CUDA graph where the optimizer allows it
  train       the same model in PyTorch (bench/twin.py), compiled on a GPU and eager elsewhere, with torch's fused AdamW and prism_optim
It prints the versions of the peers first. A peer need not be installed: a folder on PYTHONPATH that holds its unpacked wheel will do.
Compare numbers only within one run. PRISM= names the program to run instead of build/release/prism.
"""

import importlib
import importlib.metadata
import json
import os
import pathlib
import resource
import shlex
import statistics
import sys
import time

PACKAGES = ["torch", "triton", "dion", "gram-newton-schulz", "quack-kernels"]  # the last has the kernels of the one before
SERVE = "--serve"  # the program talks to this script through the protocol in prism/bench/peers.h


def version_of(package):
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{package} not installed"


def start_program():
    root = pathlib.Path(__file__).resolve().parents[1]
    program = os.environ.get("PRISM", str(root / "build/release/prism"))
    if not os.access(program, os.X_OK):
        raise SystemExit(f"{program} not found; build it with make build, or name another with PRISM=")
    package = pathlib.Path(program).parent / "python"  # prism_optim of the same build
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))
    options = sys.argv[1:]
    kind = options.pop(0) if options[:1] in (["optimizer"], ["train"]) else "optimizer"
    arguments = ["prism", "bench", kind, *options]
    if not {"-h", "--help"} & set(options):
        arguments += ["--peers", shlex.join([sys.executable, __file__, SERVE])]
        print("peers:", ", ".join(map(version_of, PACKAGES)), flush=True)
    os.execv(program, arguments)


if __name__ == "__main__" and sys.argv[1:] != [SERVE]:
    start_program()

import torch  # noqa: E402
import twin  # noqa: E402

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
    """Muon on stacks of equally shaped matrices with a compiled Newton-Schulz iteration, as in fast implementations in plain PyTorch."""

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


def from_prism(name, **options):
    """Returns a maker of one of prism_optim's optimizers with these options."""
    return lambda params, capturable: getattr(importlib.import_module("prism_optim"), name)(params, capturable=capturable, **options)


def dion_muon(params, **_):
    return importlib.import_module("dion").Muon(params, lr=0.02, use_triton=True)


def dion_muon_graph(params, **_):
    # Under its own CUDA graph. It is captured by the third of the steps that `measure` takes before it times any.
    return importlib.import_module("dion.cuda_graph").CudaGraphOptimizer(dion_muon(params), warmup_steps=2)


def gram_muon(params, **_):
    return importlib.import_module("gram_newton_schulz").Muon(params, lr=0.02)


def gram_muon_torch(params, **_):
    return importlib.import_module("gram_newton_schulz").Muon(params, lr=0.02, ns_use_kernels=False)


def fused_adamw(params, capturable):
    return torch.optim.AdamW(params, lr=0.005, fused=True, capturable=capturable)


# For each peer: the function that makes it, and the optimizer of `prism bench optimizer` that does the same work.
PEERS = {
    "prism_optim_prism_minimax9": (from_prism("Prism", coefficients="minimax9"), "prism_minimax9"),
    "prism_optim_muon_minimax9": (from_prism("Muon", coefficients="minimax9"), "muon_minimax9"),
    "prism_optim_adamw": (from_prism("AdamW"), "adamw"),
    "torch_muon": (lambda params, **_: torch.optim.Muon(params, lr=0.02, weight_decay=0, adjust_lr_fn="match_rms_adamw"), "muon"),
    "torch_adamw": (lambda params, capturable: torch.optim.AdamW(params, lr=0.005, foreach=True, capturable=capturable), "adamw"),
    "torch_adamw_fused": (fused_adamw, "adamw"),
    "batched_muon_compiled": (lambda params, **_: BatchedMuon(params), "muon"),
    "dion_muon": (dion_muon, "muon"),
    "dion_muon_graph": (dion_muon_graph, "muon"),
    "gram_newton_schulz": (gram_muon, "muon"),
    "gram_newton_schulz_torch": (gram_muon_torch, "muon"),
    "prism_optim_adamw_rest": (from_prism("AdamW"), "adamw_rest"),
    "torch_adamw_fused_rest": (fused_adamw, "adamw_rest"),
}
ONLY_GPU = {"batched_muon_compiled", "dion_muon", "dion_muon_graph", "gram_newton_schulz", "gram_newton_schulz_torch"}


def make_params(shapes, device):
    make = torch.Generator(device).manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(shape, generator=make, device=device) * 0.02) for shape in shapes]
    for p in params:
        p.grad = torch.randn(p.shape, generator=make, device=device)
    return params


def timed(function, device, repeats):
    """Returns the median milliseconds of one call. On a GPU, each call is timed by two events, without synchronizing between calls."""
    if device == "cpu":
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            function()
            times.append(1e3 * (time.perf_counter() - start))
        return statistics.median(times)
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for start, end in events:
        start.record()
        function()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events)


def captured(optimizer):
    """Returns the step as a CUDA graph, or None if it cannot be captured."""
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
    except Exception:  # peers raise many types during capture
        torch.cuda.synchronize()
        return None
    return graph


def state_bytes(optimizer):
    return sum(t.nbytes for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t) and t.dim() > 0)


def measure(make, params, device, repeats):
    on_gpu = device != "cpu"
    before = torch.cuda.memory_allocated() if on_gpu else 0
    optimizer = make(params, capturable=on_gpu)
    for _ in range(3):
        optimizer.step()
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    result = {"eager_ms": timed(optimizer.step, device, repeats)}
    memory = torch.cuda.max_memory_allocated() - before if on_gpu else state_bytes(optimizer)
    result["memory_mib"] = memory / 2**20
    graph = captured(optimizer) if on_gpu else None
    if graph is not None:
        graph.replay()
        result["captured_ms"] = timed(graph.replay, device, repeats)
    return result


def optimizer_answers(job):
    """Yields the name of each peer and a function that measures it."""
    device, on_gpu = job["device"], job["device"] != "cpu"
    params, rest = make_params(job["matrices"], device), make_params(job["rest"], device)
    for name, (make, like) in PEERS.items():
        if (job["only"] and name not in job["only"]) or (not on_gpu and name in ONLY_GPU):
            continue
        chosen = rest if name.endswith("_rest") else params
        if chosen:
            facts = {"like": like, "rest": chosen is rest, "ours": name.startswith("prism_optim")}
            yield name, lambda make=make, chosen=chosen, facts=facts: facts | measure(make, chosen, device, job["repeats"])


def training(job, make_optimizer):
    on_gpu = job["device"] != "cpu"
    step = twin.training_step(job, make_optimizer, compiled=on_gpu)
    first = step().item()
    for _ in range(3):
        step()
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    step_ms = timed(step, job["device"], job["steps"])
    last = step().item()
    peak = torch.cuda.max_memory_allocated() if on_gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"step_ms": step_ms, "peak_bytes": peak, "first_loss": first, "last_loss": last}


def training_answers(job):
    kind = "eager" if job["device"] == "cpu" else "compiled"
    for name, make in twin.OPTIMIZERS.items():
        yield f"torch_{kind}_{name}", lambda make=make: training(job, make)


def answers(job):
    on_gpu = job["device"] != "cpu"
    if on_gpu:
        torch.cuda.set_device(job["device"])
    for name, measured in {"optimizer": optimizer_answers, "train": training_answers}[job["kind"]](job):
        try:
            yield {"name": name} | measured()
        except ImportError as problem:
            yield {"name": name, "missing": f"{problem.name} is not installed"}
        except Exception as problem:  # a peer that fails must not stop the others
            yield {"name": name, "missing": (str(problem) or type(problem).__name__).splitlines()[0][:100]}
        if on_gpu:
            torch.cuda.empty_cache()


def serve():
    def say(line):
        print(json.dumps(line), file=answer_to, flush=True)

    answer_to, sys.stdout = sys.stdout, sys.stderr  # keep what libraries print out of the answers
    say({"names": list(PEERS)})
    for job in sys.stdin:
        for answer in answers(json.loads(job)):
            say(answer)
        say({})


if __name__ == "__main__":
    serve()
