"""Cases of test_sharded.py: a real backward pass with NaN, frozen and unused layers, and checkpoints from any number of processes to any other."""

import prism_optim
import torch
import torch.distributed as dist
from sharded import (
    Net, assert_equal, case, columns, fsdp, fsdp_and_tensor_parallel, hsdp, load, local_weights, optimizer_of, save, tensor_parallel, train, whole,
    world_mesh,
)  # fmt: skip
from torch import nn
from torch.distributed.fsdp import fully_shard


class Branches(nn.Module):
    """Has a frozen layer, and one that only some batches need."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.frozen, self.seldom, self.outer = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 4)
        self.hidden = nn.Linear(16, 16)
        self.frozen.requires_grad_(False)

    def forward(self, x, with_seldom):
        x = self.hidden(self.frozen(self.inner(x).tanh()).tanh()).tanh()
        return self.outer(self.seldom(x).tanh() if with_seldom else x)


@case(2, clip=False)
@case(2, clip=True)
def a_real_backward_pass_meets_nan_frozen_and_unused_layers(folder, clip):
    """The batch of one process holds a NaN at step 2. The layer `seldom` has gradients at the odd steps only."""
    rank, steps, poisoned = dist.get_rank(), 6, 2
    x, y = (torch.randn(8, size, generator=torch.Generator().manual_seed(size)) for size in (6, 4))
    model, one = Branches(), Branches()
    fully_shard(model, mesh=world_mesh())
    model.set_force_sum_reduction_for_comms(True)
    model.set_gradient_divide_factor(1.0)
    optimizer, reference = (prism_optim.Mixed(net, lr=0.05, aux_lr=0.01, skip_nonfinite=True) for net in (model, one))
    for step in range(steps):
        rows = slice(4 * rank, 4 * rank + 4)
        batch = torch.where(torch.tensor(step == poisoned and rank == 1), torch.nan, x[rows])
        ((model(batch, step % 2 == 1) - y[rows]).square().sum() / 32).backward()
        if clip:
            norm = whole(nn.utils.clip_grad_norm_(model.parameters(), 0.05))
            norms = [torch.empty_like(norm) for _ in range(2)]
            dist.all_gather(norms, norm)
            assert torch.equal(*norms) or (step == poisoned and norm.isnan())
        before = local_weights(model)
        optimizer.step()
        assert all(map(torch.equal, local_weights(model), before)) == (step == poisoned)
        assert torch.equal(model.seldom.weight._local_tensor, before[list(dict(model.named_parameters())).index("seldom.weight")]) == (step % 2 == 0)
        optimizer.zero_grad()
        if step == poisoned:
            continue
        ((one(x, step % 2 == 1) - y).square().sum() / 32).backward()
        if clip:
            nn.utils.clip_grad_norm_(one.parameters(), 0.05)
        reference.step()
        reference.zero_grad()
    assert optimizer.skipped == 1
    for p, expected in zip(model.parameters(), one.parameters(), strict=True):
        torch.testing.assert_close(whole(p.detach()), expected.detach(), rtol=1e-3, atol=1e-4)
    assert torch.equal(whole(model.frozen.weight.detach()), Branches().frozen.weight)


SAVED = ("every", "soap")  # options with state that owners keep
SAVED_AS = {1: None, 2: columns, 3: fsdp, 4: fsdp_and_tensor_parallel}  # how processes of this number cut the model


def saves(rank, size, folder):
    torch.set_num_threads(1)
    for options in SAVED:
        model = Net()
        if SAVED_AS[size]:
            SAVED_AS[size](model)
        optimizer = optimizer_of(model, options)
        train(model, optimizer, 2, SAVED_AS[size])
        save(model, optimizer, f"{folder}/saved.{options}.{size}")


def what_some_processes_saved_continues(folder, saved_by, cut=None):
    cut = cut or {2: tensor_parallel, 3: columns, 4: hsdp}[dist.get_world_size()]
    for options in SAVED:
        plain, model = Net(), Net(seed=9)
        if cut != "whole":
            cut(model)
        reference, optimizer = optimizer_of(plain, options), optimizer_of(model, options)
        load(model, optimizer, f"{folder}/saved.{options}.{saved_by}")
        train(plain, reference, 3)
        train(model, optimizer, 1, None if cut == "whole" else cut, first=2)
        assert_equal(model, optimizer, plain, reference)


for _size in SAVED_AS:
    case(2, 3, 4, saved_by=_size)(what_some_processes_saved_continues)
