"""Records what torch.optim.Muon does with given gradients, for the test of prism::Muon.

    python record_muon.py OUTPUT.safetensors

For each shape: the start, 100 gradients, the weights torch.optim.Muon (match_rms_adamw) reaches, and those of its formula in float64.
"""

import os
import sys

# Some processors announce a newer bfloat16 product than they carry out.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch
from safetensors.torch import save_file

STEPS = 100
SHAPES = [(64, 32), (32, 96), (48, 48), (16, 128)]
LR, DECAY, MOMENTUM = 0.02, 0.1, 0.95
A, B, C = 3.4445, -4.7750, 2.0315


def by_torch(start, gradients):
    weight = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.Muon(
        [weight], lr=LR, weight_decay=DECAY, momentum=MOMENTUM, nesterov=True, adjust_lr_fn="match_rms_adamw"
    )
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()
    return weight.detach()


def newton_schulz(matrix):
    x = matrix / matrix.norm()
    if x.shape[0] > x.shape[1]:
        return newton_schulz(matrix.T).T
    for _ in range(5):
        gram = x @ x.T
        x = A * x + (B * gram + C * gram @ gram) @ x
    return x


def by_formula(start, gradients):
    weight = start.double()
    momentum = torch.zeros_like(weight)
    for gradient in gradients.double():
        momentum = MOMENTUM * momentum + (1 - MOMENTUM) * gradient
        update = newton_schulz((1 - MOMENTUM) * gradient + MOMENTUM * momentum)
        weight = weight * (1 - LR * DECAY) - LR * 0.2 * max(weight.shape) ** 0.5 * update
    return weight


def main():
    torch.manual_seed(0)
    record = {}
    for rows, columns in SHAPES:
        start = torch.randn(rows, columns)
        drift = torch.randn(rows, 4) @ torch.randn(4, columns)  # a few directions carry the signal
        gradients = 0.3 * drift + torch.randn(STEPS, rows, columns)
        name = f"{rows}x{columns}"
        record[f"{name}.start"] = start
        record[f"{name}.gradients"] = gradients
        record[f"{name}.torch"] = by_torch(start, gradients)
        record[f"{name}.formula"] = by_formula(start, gradients)
    save_file({name: tensor.contiguous() for name, tensor in record.items()}, sys.argv[1])


if __name__ == "__main__":
    main()
