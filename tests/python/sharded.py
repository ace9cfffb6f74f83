"""A model whose parameters are cut in every way, helpers that train and compare it, and the list of cases that test_sharded.py runs."""

import functools

import prism_optim
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

CASES: dict[int, list] = {2: [], 3: [], 4: []}


def case(*sizes, **arguments):
    """Makes a function a test that runs in worlds of these sizes, with these arguments."""

    def register(function):
        name = " ".join([function.__name__.replace("_", " "), *map(str, arguments.values())])
        for size in sizes:
            CASES[size].append((name, function, arguments))
        return function

    return register


# ---- a model whose parameters are cut in every way


class Net(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(11, 8)
        self.attention = nn.MultiheadAttention(8, 2)  # its input projection is split into three
        self.up, self.down = nn.Linear(8, 24), nn.Linear(24, 8)
        self.twin = nn.Linear(8, 24)  # shares a bucket with `up`
        self.wide = nn.Linear(16, 4)  # with tensor parallelism its shards have the shape of those of attention.out_proj
        self.thin = nn.Linear(40, 2)  # fewer rows than processes
        self.conv = nn.Conv2d(3, 5, 3)  # flattened
        self.experts = nn.Parameter(torch.randn(5, 8, 12))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 11)


def filled(model, seed):
    """Fills the model with random weights of this seed, the same on all processes."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
    return model


def world_mesh():
    return init_device_mesh("cpu", (dist.get_world_size(),))


def fsdp(model):
    fully_shard(model, mesh=world_mesh())


def distributed(model, mesh, placements):
    """Replaces every parameter by a DTensor with placements(parameter)."""
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            module.register_parameter(name, nn.Parameter(distribute_tensor(parameter.data, mesh, placements(parameter))))


def columns(model):
    distributed(model, world_mesh(), lambda p: [Shard(1) if p.dim() > 1 else Shard(0)])


def hsdp(model):
    fully_shard(model, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))


def tensor_parallel(model, mesh=None):
    rows, columns = ("up", "twin", "attention.out_proj", "head"), ("down", "wide", "embed")
    plan = {name: ColwiseParallel() for name in rows} | {name: RowwiseParallel() for name in columns}
    mesh = mesh or world_mesh()
    parallelize_module(model, mesh, plan)
    model.experts = nn.Parameter(distribute_tensor(model.experts.data, mesh, [Shard(0)]))


def fsdp_and_tensor_parallel(model):
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "tp"))
    tensor_parallel(model, mesh["tp"])
    fully_shard(model, mesh=mesh["dp"])


def nested(model):
    """Shard(0) over both dimensions of a mesh, from left to right."""
    distributed(model, init_device_mesh("cpu", (2, 2)), lambda p: [Shard(0), Shard(0)])


OPTIONS = {
    "prism": {"matrices": "prism"},  # the recommended setting: an averaged covariance of the inputs, wide matrices whitened
    "inputs": {"matrices": "prism", "side": "inputs"},
    "instant": {"matrices": "prism", "covariance": "instant", "gamma": 1.0, "side": "right", "coefficients": "jordan", "normalize": "none"},
    "ema": {"matrices": "prism", "covariance": "ema", "side": "short"},
    "every": {"matrices": "prism", "covariance": "ema", "covariance_every": 3, "bias_correction": True},
    "sketch": {"matrices": "prism", "covariance": "sketch", "rank": 3},
    "subspace": {"matrices": "prism", "covariance": "subspace", "rank": 3, "fixed_norm": True},
    "rows": {"matrices": "prism", "normalize": "rows"},
    "both": {"matrices": "prism", "side": "both", "weight_decay": 0.1},
    "muon": {"matrices": "muon", "master_weights": True},
    "soap": {"matrices": "soap", "refresh": 3},
    "shampoo": {"matrices": "shampoo"},
    "rmsspectral": {"matrices": "rmsspectral", "rest": "rmsprop"},
}


def optimizer_of(model, options="prism", own=None, comm_dtype=None, **more):
    groups = prism_optim.param_groups(model, lr=0.05, aux_lr=0.01, **OPTIONS[options] | more)
    return prism_optim.Mixed(groups, own=own, comm_dtype=comm_dtype)


@functools.cache
def gradients(cut, dtype, step):
    """Returns the gradients of a step, cut like the parameters: cuts a model whose weights they are."""
    model = filled(Net().to(dtype), 100 + step)
    if cut:
        cut(model)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def train(model, optimizer, steps, cut=None, first=0, without=()):
    for step in range(first, first + steps):
        given = gradients(cut, next(model.parameters()).dtype, step)
        for name, parameter in model.named_parameters():
            parameter.grad = None if name in without else given[name]
        optimizer.step()


def local_weights(model):
    return [(p._local_tensor if isinstance(p, DTensor) else p).detach().clone() for p in model.parameters()]


def whole(value):
    return value.full_tensor() if isinstance(value, DTensor) else value


def assert_equal(model, optimizer, expected_model, expected_optimizer):
    for (name, parameter), expected in zip(model.named_parameters(), expected_model.parameters(), strict=True):
        assert torch.equal(whole(parameter.detach()), expected), name
    assert_equal_state(optimizer, expected_optimizer)


def assert_equal_state(optimizer, expected_optimizer):
    ours, theirs = optimizer.state_dict(), expected_optimizer.state_dict()
    for number, expected in theirs["state"].items():
        assert ours["state"][number].keys() == expected.keys()
        for key, value in expected.items():
            found = whole(ours["state"][number][key])
            assert found.dtype == value.dtype
            assert torch.equal(found, value), (number, key)


class Counted:
    """Counts the calls of DTensor.full_tensor."""

    def __enter__(self):
        self.calls, self.original = 0, DTensor.full_tensor

        def counted(tensor, **options):
            self.calls += 1
            return self.original(tensor, **options)

        DTensor.full_tensor = counted
        return self

    def __exit__(self, *_):
        DTensor.full_tensor = self.original


def compared(cut, options="prism", steps=20, dtype=torch.float32, **more):
    plain = Net().to(dtype)
    reference = optimizer_of(plain, options, **more)
    train(plain, reference, steps)
    model = Net().to(dtype)
    cut(model)
    optimizer = optimizer_of(model, options, **more)
    with Counted() as counted:
        train(model, optimizer, steps, cut)
    assert counted.calls == 0
    for parameter in (model.up.weight, model.down.weight):
        momentum = optimizer.state[parameter].get("momentum")
        assert momentum is None or (momentum.device_mesh, momentum.placements) == (parameter.device_mesh, parameter.placements)
    assert_equal(model, optimizer, plain, reference)
    return model, optimizer


def parts_of(model, optimizer):
    return {"model": model.state_dict(), "optimizer": get_optimizer_state_dict(model, optimizer)}


def save(model, optimizer, folder):
    dcp.save(parts_of(model, optimizer), checkpoint_id=folder)


def load(model, optimizer, folder):
    parts = parts_of(model, optimizer)
    dcp.load(parts, checkpoint_id=folder)
    model.load_state_dict(parts["model"])
    set_optimizer_state_dict(model, optimizer, parts["optimizer"])
