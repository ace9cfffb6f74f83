"""Loss and gradients of one batch: prism/model beside the same model in eager PyTorch (and compiled, with --compile).

Rounds alternate between the two, so that a change of the machine's speed meets both; the table shows medians over rounds.
"""

import argparse
import json
import math
import statistics
import subprocess
import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy, rms_norm, scaled_dot_product_attention, silu

# layers, width, heads, kv_heads, mlp: the presets of prism/model/config.cpp
PRESETS = {"demo": (4, 128, 4, 2, 352), "22m": (8, 512, 8, 2, 1408), "124m": (12, 768, 12, 4, 2048)}


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return rms_norm(x, self.weight.shape, self.weight, 1e-6)


def rope(x, cosine, sine):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)


class Layer(nn.Module):
    def __init__(self, width, heads, kv_heads, mlp):
        super().__init__()
        self.head_dim = width // heads
        kv = kv_heads * self.head_dim
        self.norm1, self.norm2 = Norm(width), Norm(width)
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, kv), nn.Linear(width, kv)
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, mlp, bias=False), nn.Linear(width, mlp, bias=False)
        self.down = nn.Linear(mlp, width, bias=False)

    def forward(self, x, cosine, sine):
        n = self.norm1(x)
        q, k, v = (p(n).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = rope(q, cosine, sine).to(v.dtype), rope(k, cosine, sine).to(v.dtype)
        o = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(o.transpose(1, 2).flatten(2))
        n = self.norm2(x)
        return x + self.down(silu(self.gate(n)) * self.up(n))


class Twin(nn.Module):
    def __init__(self, preset, vocab, context):
        super().__init__()
        layers, width, heads, kv_heads, mlp = PRESETS[preset]
        self.embedding = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(Layer(width, heads, kv_heads, mlp) for _ in range(layers))
        self.norm = Norm(width)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        head_dim = width // heads
        angles = torch.outer(torch.arange(context), 1e6 ** (-torch.arange(0, head_dim, 2) / head_dim))
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, tokens):
        x = self.embedding(tokens[:, :-1])
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine)
        logits = self.norm(x) @ self.embedding.weight.T
        return cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def torch_step(args, compiled):
    torch.manual_seed(0)
    model = Twin(args.preset, args.vocab, args.context).to(args.device)
    run = torch.compile(model) if compiled else model
    tokens = torch.randint(0, args.vocab, (args.batch, args.context + 1), device=args.device)

    def step():
        model.zero_grad(set_to_none=True)
        with torch.autocast(args.device, torch.bfloat16, enabled=args.device == "cuda"):
            loss = run(tokens)
        loss.backward()
        return loss.item()

    return step


def time_torch(step, seconds):
    for _ in range(3):
        loss = step()
    assert math.isfinite(loss)
    times = []
    while sum(times) < seconds or len(times) < 3:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def time_ours(args, *flags):
    sizes = [args.preset, args.vocab, args.batch, args.context, args.seconds]
    command = [args.program, *map(str, sizes), *(["--device", "cuda"] if args.device == "cuda" else []), *flags]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["milliseconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--preset", default="demo", choices=PRESETS)
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()

    steps = {"PyTorch, eager": lambda: time_torch(torch_step(args, False), args.seconds)}
    if args.compile:
        steps["PyTorch, compiled"] = lambda: time_torch(torch_step(args, True), args.seconds)
    steps["Prism"] = lambda: time_ours(args)
    steps["Prism, recomputing"] = lambda: time_ours(args, "--recompute")
    times = {name: [] for name in steps}
    for _ in range(args.rounds):
        for name, run in steps.items():
            times[name].append(run())
    tokens = args.batch * args.context
    print(f"{args.preset}, vocabulary {args.vocab}, {args.batch} × {args.context} tokens, {args.device}, torch {torch.__version__}")
    eager = statistics.median(times["PyTorch, eager"])
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:<20} {median:9.2f} ms  {1e3 * tokens / median:12,.0f} tokens/s  {eager / median:5.2f}×")


if __name__ == "__main__":
    main()
