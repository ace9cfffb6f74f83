"""torch.distributed.checkpoint: full and sharded state of two processes, loaded by one and by two."""

import math

import prism_optim
import pytest
import torch
import torch.distributed.checkpoint as dcp
from optim_cases import assert_same, states
from processes import run
from tiny_models import regression, tiny_net
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel


def steps(model, optimizer, count, first=0):
    x, y = regression()
    for i in range(first, first + count):
        optimizer.zero_grad()
        (model(x[i::8]) - y[i::8]).square().mean().backward()
        optimizer.step()


def make(model, **options):
    return prism_optim.Mixed(model, lr=0.02, aux_lr=0.005, master_weights=True, **options)


def save(rank, size, folder):
    """Writes the sharded checkpoint after two steps, the full one beside it, and what the next two steps give."""
    model = DistributedDataParallel(tiny_net())
    optimizer = make(model)
    steps(model, optimizer, 2)
    parts = get_state_dict(model, optimizer)
    dcp.save({"model": parts[0], "optimizer": parts[1]}, checkpoint_id=f"{folder}/sharded")
    full = get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(full, f"{folder}/full")
    steps(model, optimizer, 2, 2)
    torch.save((model.module.state_dict(), states(optimizer)), f"{folder}/expected.{rank}")


def restore(model, optimizer, folder, kind):
    if kind == "full":
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=False)
        parts = torch.load(f"{folder}/full", weights_only=False)
    else:
        options = None
        parts = get_state_dict(model, optimizer)
        dcp.load({"model": parts[0], "optimizer": parts[1]}, checkpoint_id=f"{folder}/sharded")
    set_state_dict(model, optimizer, model_state_dict=parts[0], optim_state_dict=parts[1], options=options)
    assert [group["lr"] for group in optimizer.param_groups] == [0.02, 0.005]
    steps(model, optimizer, 2, 2)
    return {name.removeprefix("module."): value for name, value in model.state_dict().items()}, states(optimizer)


def load(rank, size, folder):
    for kind in ("full", "sharded"):
        model = DistributedDataParallel(tiny_net(3))
        optimizer = prism_optim.Mixed(model, lr=7.0, aux_lr=7.0, master_weights=True)
        expected = torch.load(f"{folder}/expected.{rank}", weights_only=True)
        assert_same(restore(model, optimizer, folder, kind), tuple(expected))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dcp")
    run(__file__, "save", 2, folder)
    return folder


@pytest.mark.parametrize("kind", ["full", "sharded"])
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
def test_one_plain_process_continues_what_two_wrapped_ones_saved(folder, kind, compiled):
    model = torch.compile(tiny_net(3), backend="eager") if compiled else tiny_net(3)
    optimizer = prism_optim.Mixed(model, lr=7.0, aux_lr=7.0, master_weights=True)
    expected = torch.load(folder / "expected.0", weights_only=True)
    found = restore(model, optimizer, folder, kind)
    assert_same(({name.removeprefix("_orig_mod."): value for name, value in found[0].items()}, found[1]), tuple(expected))


def test_two_processes_continue_bit_for_bit(folder):
    run(__file__, "load", 2, folder)


@pytest.mark.parametrize("kind", ["full", "sharded"])
def test_tied_rates_survive(tmp_path, kind):
    model, other = tiny_net(), tiny_net(3)
    optimizer = prism_optim.Mixed(model, lr=0.02, aux_lr=0.005, tie_rates=True)
    steps(model, optimizer, 1)
    twin = prism_optim.Mixed(other, lr=7.0, aux_lr=7.0, tie_rates=True)
    move(model, optimizer, other, twin, tmp_path, kind)
    assert [(g["lr"], g["lr_ratio"]) for g in twin.param_groups] == [(0.02, 1.0), (0.02, 0.25)]
    assert_same(states(twin), states(optimizer))


def move(model, optimizer, other, twin, folder, kind):
    options = StateDictOptions(full_state_dict=kind == "full")
    parts = get_state_dict(model, optimizer, options=options)
    if kind == "sharded":
        dcp.save({"model": parts[0], "optimizer": parts[1]}, checkpoint_id=folder / "saved")
        parts = get_state_dict(other, twin, options=options)
        dcp.load({"model": parts[0], "optimizer": parts[1]}, checkpoint_id=folder / "saved")
    set_state_dict(other, twin, model_state_dict=parts[0], optim_state_dict=parts[1], options=options)


@pytest.mark.parametrize("kind", ["full", "sharded"])
def test_skipped_steps_survive(tmp_path, kind):
    model, other = tiny_net(), tiny_net(3)
    optimizer, twin = (prism_optim.Mixed(each, skip_nonfinite=True) for each in (model, other))
    steps(model, optimizer, 1)
    model.head.bias.grad[0] = math.nan
    optimizer.step()
    assert optimizer.skipped.item() == 1
    move(model, optimizer, other, twin, tmp_path, kind)
    assert twin.skipped.item() == 1
