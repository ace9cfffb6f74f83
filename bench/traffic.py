"""Bytes that prism_optim sends at a step on many processes, as the engine counts them. One process plays each rank in turn, in a process group
that delivers nothing: what is sent depends on shapes and owners only.

    PYTHONPATH=build/release/python .venv/bin/python bench/traffic.py --ranks 64

The matrices are those of the 1B model with a sixteenth of their columns (`--scale`). Rows are cut over the ranks, so bytes are proportional to
the columns, and the table shows those of the whole model.
"""

import argparse
from typing import Any

import prism_optim
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

LAYERS, WIDTH, KV, MLP = 24, 2048, 512, 5632  # of `prism bench scaling --model 1b`
LAYER = {"q": (WIDTH, WIDTH), "k": (KV, WIDTH), "v": (KV, WIDTH), "o": (WIDTH, WIDTH), "gate": (MLP, WIDTH), "up": (MLP, WIDTH), "down": (WIDTH, MLP)}

# class, options, and bytes to the owner and back for each element that the owner does not hold
RULES = {
    "PRISM": (prism_optim.Prism, {}, 8, 4),
    "PRISM, bfloat16 updates": (prism_optim.Prism, {"comm_dtype": "bfloat16"}, 8, 2),
    "Muon": (prism_optim.Muon, {}, 4, 4),
}


class SilentGroup(dist.ProcessGroup):
    """A process group that delivers zeros."""

    group_name: Any = "silent"

    def __init__(self, rank, size):
        super().__init__(rank, size)
        torch._C._distributed_c10d._register_process_group(self.group_name, self)

    def getGroupName(self):
        return self.group_name

    def getBackendName(self):
        return "silent"

    def alltoall_base(self, output, given, received, sent, options=None):
        output.zero_()
        return self._done()

    def allreduce(self, tensors, options=None):
        return self._done()

    def broadcast(self, tensors, options=None):
        return self._done()

    @staticmethod
    def _done():
        future = torch.futures.Future()
        future.set_result(None)
        return torch._C._distributed_c10d._create_work_from_future(future)


dist.Backend.register_backend("silent", lambda store, rank, size, timeout: SilentGroup(rank, size), devices=["cpu"])


def shapes(layers, scale):
    return {f"layers.{i}.{name}": (rows, columns // scale) for i in range(layers) for name, (rows, columns) in LAYER.items()}


def bytes_sent(rule, rank, ranks, layers, scale):
    """Returns the bytes that a rank sends at its second step, and those that each rank sends according to plan()."""
    kind, options, _, _ = RULES[rule]
    dist.init_process_group("silent", rank=rank, world_size=ranks, store=dist.HashStore())
    try:
        mesh = init_device_mesh("cpu", (ranks,))
        cut = lambda rows, columns: DTensor.from_local(torch.ones(rows // ranks, columns), mesh, [Shard(0)], run_check=False)  # noqa: E731
        parameters = [(name, nn.Parameter(cut(*shape))) for name, shape in shapes(layers, scale).items()]
        optimizer = kind(parameters, **options)
        sent = []
        for _ in range(2):
            for _, parameter in parameters:
                parameter.grad = cut(*parameter.shape)
            optimizer.step()
            sent.append(optimizer._engine.bytes_sent())
        planned = [int(line.split("sends ")[1].split()[0]) for line in optimizer.plan().splitlines() if line.startswith("rank")]
        return sent[1] - sent[0], planned
    finally:
        dist.destroy_process_group()
        torch._C._distributed_c10d._unregister_process_group(SilentGroup.group_name)


def formula(rule, ranks, layers, scale):
    """Returns the bytes of all ranks together: each owner holds 1/ranks of the rows already."""
    elements = sum(rows * columns for rows, columns in shapes(layers, scale).values())
    return sum(RULES[rule][2:]) * elements * (ranks - 1) // ranks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64, help="a divisor of 512")
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--scale", type=int, default=16, help="divides the columns")
    arguments = parser.parse_args()
    ranks, layers, scale = arguments.ranks, arguments.layers, arguments.scale
    print(f"{ranks} ranks, {len(shapes(layers, scale))} matrices, MB at a step\n\n| | all ranks, measured | formula | mean of a rank | most of a rank |\n|---|---|---|---|---|")
    for rule in RULES:
        each = [bytes_sent(rule, rank, ranks, layers, scale) for rank in range(ranks)]
        sent = [scale * one / 1e6 for one, _ in each]
        assert all(planned == [one for one, _ in each] for _, planned in each), "plan() expected other bytes"
        print(f"| {rule} | {sum(sent):,.1f} | {scale * formula(rule, ranks, layers, scale) / 1e6:,.1f} | {sum(sent) / ranks:,.1f} | {max(sent):,.1f} |")


if __name__ == "__main__":
    main()
