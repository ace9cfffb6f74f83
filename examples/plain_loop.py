"""Trains a small network in a plain PyTorch loop. Prints the routing first and the spectra after the last step.

    python examples/plain_loop.py
"""

import prism_optim
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
inputs = torch.randn(1024, 32)
targets = torch.sin(inputs @ torch.randn(32, 1) / 3)

optimizer = prism_optim.Mixed(model, lr=0.01, aux_lr=0.005)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=150)
print(optimizer.routing())

for step in range(150):
    batch = torch.randint(len(inputs), (128,))
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs[batch]), targets[batch])
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 30 == 0 or step == 149:
        print(f"step {step:3}  loss {loss.item():.4f}  lr {scheduler.get_last_lr()[0]:.4f}")

for name, spectrum in prism_optim.inspect(optimizer).items():
    print(f"{name}: median SNR {spectrum.snr.median():.2f}, median gain {spectrum.gain.median():.2f}")
