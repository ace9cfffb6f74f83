"""DistributedDataParallel with torch.compile in two processes."""

import prism_optim
import pytest
import torch
from optim_cases import assert_same
from processes import run
from tiny_models import regression, tiny_net


def train(rank, size, folder):
    model = tiny_net().double()
    wrapped = torch.compile(torch.nn.parallel.DistributedDataParallel(model), backend="aot_eager")  # no C++ compiler, and seconds instead of minutes
    optimizer = prism_optim.Mixed(wrapped, lr=0.02, aux_lr=0.005)
    step = torch.compile(optimizer.step)
    x, y = (part.double() for part in regression())
    for _ in range(5):
        optimizer.zero_grad()
        here = slice(rank, None, size)
        (wrapped(x[here]) - y[here]).square().mean().backward()
        step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "routing": optimizer.routing()}, f"{folder}/out.{size}.{rank}")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ddp")
    for size in (1, 2):
        run(__file__, "train", size, folder)
    return [torch.load(folder / f"out.{size}.{rank}", weights_only=True) for size, rank in ((1, 0), (2, 0), (2, 1))]


def test_two_compiled_processes_train_as_one(results):
    one, first, second = results
    assert_same(first["model"], second["model"])
    assert_same(first["optimizer"]["state"], second["optimizer"]["state"])
    torch.testing.assert_close(first["model"], one["model"], rtol=1e-9, atol=1e-11)


def test_their_state_loads_into_the_plain_model(results):
    model = tiny_net().double()
    model.load_state_dict(results[1]["model"])
    optimizer = prism_optim.Mixed(model)
    optimizer.load_state_dict(results[1]["optimizer"])
    assert optimizer.param_groups[0]["lr"] == 0.02
    assert results[1]["routing"] == optimizer.routing()
