"""Trains a small network with FSDP2 on several processes. Prints which process shapes each matrix, and saves the state at the end.

    torchrun --nproc-per-node 2 examples/fsdp2.py
    torchrun --nproc-per-node 8 examples/fsdp2.py --device cuda --width 4096 --layers 24 --steps 20
"""

import argparse
import os
import tempfile
import time

import prism_optim
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--layers", type=int, default=3)
parser.add_argument("--steps", type=int, default=60)
arguments = parser.parse_args()

mesh = init_device_mesh(arguments.device, (int(os.environ["WORLD_SIZE"]),))
torch.manual_seed(0)
hidden = [layer for _ in range(arguments.layers) for layer in (torch.nn.Linear(arguments.width, arguments.width), torch.nn.Tanh())]
model = torch.nn.Sequential(torch.nn.Linear(32, arguments.width), torch.nn.Tanh(), *hidden, torch.nn.Linear(arguments.width, 1)).to(arguments.device)
inputs = torch.randn(1024, 32, device=arguments.device)
targets = torch.sin(inputs @ torch.randn(32, 1, device=arguments.device) / 3)

fully_shard(model, mesh=mesh)
optimizer = prism_optim.Mixed(model, lr=0.02, aux_lr=0.005)
rank = dist.get_rank()
if rank == 0:
    print(optimizer.plan())

spent = 0.0
for step in range(arguments.steps):
    batch = torch.arange(128 * dist.get_world_size()).chunk(dist.get_world_size())[rank] % len(inputs)
    loss = torch.nn.functional.mse_loss(model(inputs[batch]), targets[batch])
    loss.backward()
    begin = time.perf_counter()
    optimizer.step()
    if arguments.device == "cuda":
        torch.cuda.synchronize()
    spent += time.perf_counter() - begin
    optimizer.zero_grad()
    if rank == 0 and step in (0, arguments.steps - 1):
        print(f"step {step:3}  loss {loss.item():.4f}  {1000 * spent / (step + 1):.1f} ms per optimizer step")

with tempfile.TemporaryDirectory() as folder:
    folders = [folder]
    dist.broadcast_object_list(folders)
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folders[0])
    dist.barrier()
dist.destroy_process_group()
