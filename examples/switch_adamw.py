"""Trains a small network with AdamW. `git apply examples/switch_to_prism.diff` switches it to PRISM by changing two lines.

    python examples/switch_adamw.py
"""

import torch
from torch.optim import AdamW

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
inputs = torch.randn(1024, 32)
targets = torch.sin(inputs @ torch.randn(32, 1) / 3)

optimizer = AdamW(model.parameters(), lr=0.005, weight_decay=0.01)

for step in range(400):
    batch = torch.randint(len(inputs), (128,))
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs[batch]), targets[batch])
    loss.backward()
    optimizer.step()

print(f"{type(optimizer).__name__}: loss {torch.nn.functional.mse_loss(model(inputs), targets).item():.5f}")
