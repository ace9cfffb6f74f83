"""PRISM with accelerate and FSDP2: `prepare` shards the model and puts the shards into the optimizer's groups.

    accelerate launch --num_processes 8 examples/fsdp2_accelerate.py
"""

import argparse
import tempfile

import prism_optim
import torch
from accelerate import Accelerator
from accelerate.utils import FullyShardedDataParallelPlugin, broadcast_object_list
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--layers", type=int, default=3)
arguments = parser.parse_args()

accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="no_wrap"))
torch.manual_seed(0)
hidden = [layer for _ in range(arguments.layers) for layer in (torch.nn.Linear(arguments.width, arguments.width), torch.nn.Tanh())]
model = torch.nn.Sequential(torch.nn.Linear(32, arguments.width), torch.nn.Tanh(), *hidden, torch.nn.Linear(arguments.width, 1))
inputs = torch.randn(1024, 32)
data = TensorDataset(inputs, torch.sin(inputs @ torch.randn(32, 1) / 3))

optimizer = prism_optim.Mixed(model, lr=0.02, aux_lr=0.005)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 60)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=64, shuffle=True), scheduler)
optimizer.zero_grad()


def train(epochs):
    for _ in range(epochs):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        loss = accelerator.reduce(loss.detach(), "mean").item()
        accelerator.print(f"loss {loss:.4f}")
    return loss


first = train(2)
accelerator.print(optimizer.optimizer.plan())
with tempfile.TemporaryDirectory() as folder:
    folders = broadcast_object_list([folder])
    accelerator.save_state(folders[0])
    accelerator.load_state(folders[0])
    accelerator.wait_for_everyone()
train(4)
accelerator.end_training()
