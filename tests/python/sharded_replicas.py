"""Cases of test_sharded.py: replicas whose work is shared, and updates that travel in two bytes."""

import contextlib
import copy
import pickle

import prism_optim
import pytest
import torch
import torch.distributed as dist
from sharded import OPTIONS, Net, assert_equal, assert_equal_state, case, fsdp, gradients, load, optimizer_of, save, train, whole
from torch import nn

# ---- replicas whose work is shared


def shared_work_equals_one_process(folder, options, dtype=torch.float32, **more):
    plain, model = Net().to(dtype), Net().to(dtype)
    reference, optimizer = optimizer_of(plain, options, **more), optimizer_of(model, options, own=dist.group.WORLD, **more)
    train(plain, reference, 6)
    train(model, optimizer, 6)
    assert_equal(model, optimizer, plain, reference)
    owners = {int(line.split("from its owner")[1].split()[0]) for line in optimizer.plan().splitlines() if "from its owner" in line}
    assert owners == set(range(dist.get_world_size()))


for _options in OPTIONS:
    case(3 if _options in ("rows", "both", "sketch", "subspace", "rmsspectral") else 2, options=_options)(shared_work_equals_one_process)
case(3, options="ema")(shared_work_equals_one_process)
case(2, options="prism", dtype=torch.bfloat16, master_weights=True)(shared_work_equals_one_process)


@case(2, 3)
def shared_work_under_ddp_equals_replicated_work(folder):
    """The default Mixed with real backward passes: weights, and all state once it is gathered."""
    results = []
    for own in (None, dist.group.WORLD):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
        wrapped = nn.parallel.DistributedDataParallel(model)
        optimizer = prism_optim.Mixed(wrapped, own=own)
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
        for step in range(6):
            optimizer.zero_grad()
            with wrapped.no_sync() if step >= 3 else contextlib.nullcontext():
                (wrapped(x) - x[:, :4].sin()).square().mean().backward()
            if step >= 3:  # a second batch is added
                (wrapped(-x) + x[:, :4].sin()).square().mean().backward()
            optimizer.step()
        results.append((model, optimizer))
    assert_equal(*results[1], *results[0])
    (_, replicated), (model, shared) = results
    counts = [sum("covariance" in optimizer.state[p] for p in optimizer.param_groups[0]["params"]) for optimizer in (replicated, shared)]
    assert 0 < counts[1] < counts[0] == 3  # the owner keeps the rest of the state
    assert all("momentum" in shared.state[p] for p in shared.param_groups[0]["params"])


@case(2, 3)
def owners_send_updates_to_the_others_and_receive_nothing(folder):
    model, size = Net(), dist.get_world_size()
    for comm_dtype, width in ((None, 4), ("bfloat16", 2)):
        optimizer = optimizer_of(model, own=dist.group.WORLD, comm_dtype=comm_dtype)
        train(model, optimizer, 1)
        elements = sum(p.numel() for p in optimizer.param_groups[0]["params"] + optimizer.param_groups[1]["params"] if p.dim() > 1)
        assert [group["optimizer"] for group in optimizer.param_groups] == ["prism", "prism", "adamw"]  # one with `split`
        sent = torch.tensor(optimizer._engine.bytes_sent())
        dist.all_reduce(sent)
        assert sent == width * (size - 1) * elements
        lines = [line for line in optimizer.plan().splitlines() if line.startswith("rank")]
        assert sum(int(line.split("sends ")[1].split()[0]) for line in lines) == sent


@case(2)
def shared_and_replicated_state_load_into_each_other(folder):
    plain, model = Net(), Net()
    reference, optimizer = optimizer_of(plain, "ema"), optimizer_of(model, "ema", own=dist.group.WORLD)
    train(plain, reference, 2)
    train(model, optimizer, 2)
    saved, given = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(reference.state_dict())
    alone = Net()
    alone.load_state_dict(model.state_dict())
    resumed, restarted = optimizer_of(alone, "ema"), optimizer_of(model, "ema", own=dist.group.WORLD)
    resumed.load_state_dict(saved)
    restarted.load_state_dict(given)
    for net, mixed in ((plain, reference), (alone, resumed), (model, restarted)):
        train(net, mixed, 2, first=2)
    assert_equal(model, restarted, plain, reference)
    assert_equal(alone, resumed, plain, reference)
    save(model, restarted, f"{folder}/own")
    read = optimizer_of(alone, "ema", own=dist.group.WORLD)
    load(alone, read, f"{folder}/own")
    assert_equal(alone, read, plain, reference)


@case(2)
def one_process_saves_alone_if_owners_keep_nothing(folder):
    """As transformers' Trainer saves under DistributedDataParallel."""
    for options in ("instant", "muon"):
        model, plain = Net(), Net()
        optimizer, reference = optimizer_of(model, options, own=dist.group.WORLD), optimizer_of(plain, options)
        train(model, optimizer, 2)
        train(plain, reference, 2)
        if dist.get_rank() == 0:
            assert_equal(model, optimizer, plain, reference)


@case(2)
def matrices_added_later_find_owners(folder):
    model, plain = Net(), Net()
    optimizers = []
    for net, own in ((model, dist.group.WORLD), (plain, None)):
        optimizer = prism_optim.Prism([("up.weight", net.up.weight)], own=own, covariance="ema")
        for step in range(4):
            if step == 2:
                optimizer.add_param_group({"params": [("down.weight", net.down.weight), ("wide.weight", net.wide.weight)]})
            for name, parameter in net.named_parameters():
                parameter.grad = gradients(None, torch.float32, step)[name]
            optimizer.step()
        optimizers.append(optimizer)
    assert_equal(model, optimizers[0], plain, optimizers[1])


@case(2)
def mistakes_with_shared_work_are_named(folder):
    model = Net()
    optimizer = prism_optim.Prism([("up.weight", model.up.weight)], own=dist.group.WORLD)
    model.up.weight.grad = torch.ones(24, 8) if dist.get_rank() == 0 else None
    with pytest.raises(RuntimeError, match=r"prism: 'up.weight' has a gradient on some of the 2 processes only; average the gradients"):
        optimizer.step()
    for duplicate in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"prism_optim: an optimizer whose state several processes share cannot be copied or pickled; save its"):
            duplicate(optimizer)
    with pytest.raises(TypeError, match="prism_optim: own must be a process group of torch.distributed, got bool"):
        prism_optim.Prism([("up.weight", model.up.weight)], own=True)
    with pytest.raises(ValueError, match="prism_optim: comm_dtype must be 'bfloat16' or None, got 'float16'"):
        prism_optim.Prism([("up.weight", model.up.weight)], comm_dtype="float16")
    with pytest.raises(ValueError, match="prism: 'up.weight' is shaped by one process for all, and their exchange cannot be captured"):
        prism_optim.Prism([("up.weight", model.up.weight)], own=dist.group.WORLD, capturable=True)


# ---- updates in two bytes


@case(2, 3)
def updates_travel_rounded_to_bfloat16(folder):
    """From weights of 0 and at a rate of 1 a step writes the update itself, negated."""
    for cut in (fsdp, None):
        plain, model = Net(), Net()
        for net in (plain, model):
            for parameter in net.parameters():
                parameter.data.zero_()
        if cut:
            cut(model)
        arguments = {"own": None if cut else dist.group.WORLD, "comm_dtype": "bfloat16"}
        reference, optimizer = optimizer_of(plain, "every"), optimizer_of(model, "every", **arguments)
        for mixed in (reference, optimizer):
            for group in mixed.param_groups:
                group["lr"] = 1.0
        train(plain, reference, 1)
        train(model, optimizer, 1, cut)
        for (name, parameter), expected in zip(model.named_parameters(), plain.parameters(), strict=True):
            travels = parameter.dim() > 1 and name not in ("embed.weight", "head.weight") and not (cut and name == "experts")
            rounded = expected.bfloat16().float() if travels else expected
            assert torch.equal(whole(parameter.detach()), rounded), name
        assert_equal_state(optimizer, reference)
