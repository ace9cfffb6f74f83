"""prism_optim and modules that wrap a model: the same routing and the same saved names, with and without them."""

import prism_optim
import pytest
import torch
import torch.distributed as dist
from optim_cases import assert_same, set_gradients, states, values
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8))
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(self.body(x))


def net(seed=0):
    torch.manual_seed(seed)
    return Net()


def with_checkpoints(model):
    model.body = checkpoint_wrapper(model.body)
    return model


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path_factory.mktemp('group')}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


WRAPPERS = {
    "ddp": nn.parallel.DistributedDataParallel,
    "compile": torch.compile,
    "both": lambda model: torch.compile(nn.parallel.DistributedDataParallel(model)),
    "data_parallel": nn.DataParallel,
    "checkpoints": with_checkpoints,
}
every_wrapper = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)


def trained(model, steps=2):
    optimizer = prism_optim.Mixed(model, lr=0.1, aux_lr=0.05)
    for step in range(steps):
        set_gradients(list(model.named_parameters()), step)
        optimizer.step()
    return optimizer


@every_wrapper
def test_a_wrapped_model_is_routed_as_the_plain_one(group, wrap):
    plain, wrapped = net(), wrap(net())
    assert prism_optim.routing(wrapped) == prism_optim.routing(plain)
    assert "fc.weight      3 × 8  head           adamw\n" in prism_optim.routing(wrapped)
    assert [g["param_names"] for g in prism_optim.param_groups(wrapped)] == [g["param_names"] for g in prism_optim.param_groups(plain)]


@every_wrapper
@pytest.mark.parametrize("save_wrapped", [True, False], ids=["from wrapped", "to wrapped"])
@pytest.mark.parametrize("named", [True, False], ids=["Mixed", "named_parameters"])
def test_state_moves_between_a_wrapped_and_a_plain_model(group, wrap, save_wrapped, named):
    def optimizer_of(model):
        return prism_optim.Mixed(model) if named else prism_optim.AdamW(model.named_parameters())

    source, target = (wrap(net()), net(1)) if save_wrapped else (net(), wrap(net(1)))
    optimizer, other = optimizer_of(source), optimizer_of(target)
    set_gradients(list(source.named_parameters()), 1)
    optimizer.step()
    other.load_state_dict(optimizer.state_dict())
    assert_same(states(other), states(optimizer))


@every_wrapper
def test_names_saved_with_their_wrappers_are_understood(group, wrap):
    source, target = wrap(net()), net(1)
    optimizer, other = trained(source), trained(target)
    saved = optimizer.state_dict()
    full = {p: name for name, p in source.named_parameters()}
    for here, there in zip(saved["param_groups"], optimizer.param_groups, strict=True):
        here["param_names"] = [full[p] for p in there["params"]]
    other.load_state_dict(saved)
    assert_same(states(other), states(optimizer))


@pytest.mark.parametrize("wrap", [w for name, w in WRAPPERS.items() if name != "data_parallel"])  # which torch's function does not know
@pytest.mark.parametrize("save_wrapped", [True, False], ids=["from wrapped", "to wrapped"])
def test_distributed_checkpoints_move_between_a_wrapped_and_a_plain_model(group, wrap, save_wrapped):
    source, target = (wrap(net()), net()) if save_wrapped else (net(), wrap(net()))
    optimizer = trained(source)
    other = prism_optim.Mixed(target, lr=7.0, aux_lr=7.0)
    with torch.no_grad():
        for p, q in zip(source.parameters(), target.parameters(), strict=True):
            q.copy_(p)
    set_optimizer_state_dict(target, other, get_optimizer_state_dict(source, optimizer))
    assert [g["lr"] for g in other.param_groups] == [0.1, 0.05]
    for model, one in ((source, optimizer), (target, other)):
        set_gradients(list(model.named_parameters()), 5)
        one.step()
    assert_same(values(list(source.named_parameters())), values(list(target.named_parameters())))
    assert_same(states(other), states(optimizer))


def test_distributed_checkpoints_find_parameters_in_another_order():
    source, target = net(), net()
    other = prism_optim.AdamW(reversed(list(target.named_parameters())))
    plain = prism_optim.AdamW(source.named_parameters())
    set_gradients(list(source.named_parameters()), 3)
    plain.step()
    set_optimizer_state_dict(target, other, get_optimizer_state_dict(source, plain))
    twins = dict(target.named_parameters())
    for name, p in source.named_parameters():
        assert_same(dict(plain.state[p]), dict(other.state[twins[name]]))


class Nested(nn.Module):
    """Its own submodule is called as DistributedDataParallel calls the model."""

    def __init__(self):
        super().__init__()
        self.module = nn.ModuleDict({"fc": nn.Linear(4, 4)})
        self.fc = nn.Linear(4, 4)


def test_names_that_would_become_equal_stay_apart(group):
    plain = Nested()
    names = ["module.fc.weight", "module.fc.bias", "fc.weight", "fc.bias"]
    assert sorted(name for g in prism_optim.param_groups(plain) for name in g["param_names"]) == sorted(names)
    assert prism_optim.routing(WRAPPERS["both"](Nested())) == prism_optim.routing(plain)
    one, two = prism_optim.AdamW(plain.named_parameters()), prism_optim.AdamW(WRAPPERS["ddp"](Nested()).named_parameters())
    assert one.state_dict()["param_groups"][0]["param_names"] == names
    set_gradients(list(plain.named_parameters()), 1)
    one.step()
    two.load_state_dict(one.state_dict())
    assert_same(states(two), states(one))


@pytest.mark.parametrize("use_orig_params", [False, True])
def test_flat_parameters_of_fsdp_are_refused_by_name(group, use_orig_params):
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(net(), device_id=torch.device("cpu"), use_orig_params=use_orig_params)
    with pytest.raises(TypeError, match="routing: '.*' is sharded by FullyShardedDataParallel, .*; use DistributedDataParallel"):
        prism_optim.Mixed(model)
