"""The model of prism/model in plain PyTorch and its training step, which bench/peers.py times beside `prism bench train`."""

import importlib
import itertools

import torch
from torch import nn
from torch.nn.functional import cross_entropy, rms_norm, scaled_dot_product_attention, silu


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
    def __init__(self, job):
        super().__init__()
        width, heads = job["width"], job["heads"]
        self.embedding = nn.Embedding(job["vocab"], width)
        self.layers = nn.ModuleList(Layer(width, heads, job["kv_heads"], job["mlp"]) for _ in range(job["layers"]))
        self.norm = Norm(width)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        head_dim = width // heads
        angles = torch.outer(torch.arange(job["context"]), 1e6 ** (-torch.arange(0, head_dim, 2) / head_dim))
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, tokens):
        x = self.embedding(tokens[:, :-1])
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine)
        logits = self.norm(x) @ self.embedding.weight.T
        return cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def fused_adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.005, fused=True)


def prism_minimax9(model):
    options = {"covariance": "instant", "gamma": 1.0, "side": "short", "coefficients": "minimax9", "normalize": "none"}
    return importlib.import_module("prism_optim").Mixed(model, lr=0.005, aux_lr=0.005, **options)


OPTIMIZERS = {"adamw": fused_adamw, "prism_minimax9": prism_minimax9}


def training_step(job, make_optimizer, compiled):
    """Returns a function that runs forward, backward, clipping and optimizer, and returns the loss without synchronizing."""
    torch.manual_seed(0)
    device = torch.device(job["device"])
    model = Twin(job).to(device)
    run = torch.compile(model) if compiled else model
    optimizer = make_optimizer(model)
    batches = itertools.cycle(torch.randint(0, job["vocab"], (4, job["batch"], job["context"] + 1), device=device).unbind())

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = run(next(batches))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), job["clip"])
        optimizer.step()
        return loss.detach()

    return step
