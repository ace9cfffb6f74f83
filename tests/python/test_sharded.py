"""DTensor parameters and replicas whose work is shared: what several gloo processes train equals what one process trains, bit for bit.

The cases of one world run in the same processes, one after the other; each is a test of its own.
"""

import copy
import datetime
import functools
import json
import os
import pathlib
import pickle
import sys
import traceback
import warnings

import prism_optim
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from processes import run
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import traffic  # noqa: E402

CASES: dict[int, list] = {2: [], 3: [], 4: []}


def case(*sizes, **arguments):
    """Makes a function a test that runs in worlds of these sizes, with these arguments."""

    def register(function):
        name = " ".join([function.__name__.replace("_", " "), *map(str, arguments.values())])
        for size in sizes:
            CASES[size].append((name, function, arguments))
        return function

    return register


def world(rank, size, folder):
    torch.set_num_threads(1)
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=120), dist.group.WORLD)
    results = {}
    for name, function, arguments in CASES[size]:
        try:
            function(folder, **arguments)
            results[name] = ""
        except BaseException:
            results[name] = traceback.format_exc()
            break  # the other processes may be elsewhere
    with open(f"{folder}/results.{size}.{rank}", "w") as file:
        json.dump(results, file)
    if any(results.values()):
        os._exit(0)  # the others fail at once, instead of waiting


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded")
    found = {}
    for size in (4, 2, 3):  # 4 saves what the others load
        run(__file__, "world", size, folder)
        for rank in range(size):
            for name, error in json.loads((folder / f"results.{size}.{rank}").read_text()).items():
                found.setdefault((size, name), []).append((rank, error))
    return found | {"folder": folder}


def pytest_generate_tests(metafunc):
    if "name" in metafunc.fixturenames:
        cases = [(size, name) for size, some in CASES.items() for name, *_ in some]
        metafunc.parametrize(("size", "name"), cases, ids=[f"{name} of {size}" for size, name in cases])


def test_several_processes(results, size, name):
    assert (size, name) in results, "an earlier case failed"
    assert results[size, name] == [(rank, "") for rank in range(size)], "\n".join(error for _, error in results[size, name])


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
    "prism": {"matrices": "prism"},  # the recommended setting: an averaged covariance of the inputs
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
    assert_equal(model, optimizer, plain, reference)
    return model, optimizer


def equals_one_process(folder, layout):
    compared(globals()[layout])


case(2, 3, 4, layout="fsdp")(equals_one_process)
case(2, 3, layout="columns")(equals_one_process)
case(2, layout="tensor_parallel")(equals_one_process)
for _layout in ("hsdp", "fsdp_and_tensor_parallel", "nested"):
    case(4, layout=_layout)(equals_one_process)


def equals_one_process_with(folder, options):
    compared(fsdp, options, steps=20 if options in ("instant", "ema", "muon", "soap") else 6)


for _options in OPTIONS:
    case(3, options=_options)(equals_one_process_with)


@case(2, 4)
def sixteen_bit_weights_with_masters_equal_one_process(folder):
    compared(fsdp if dist.get_world_size() == 2 else fsdp_and_tensor_parallel, dtype=torch.bfloat16, master_weights=True)


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
        for _ in range(5):
            optimizer.zero_grad()
            (wrapped(x) - x[:, :4].sin()).square().mean().backward()
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


# ---- what one process decides holds for all


def local_weights(model):
    return [(p._local_tensor if isinstance(p, DTensor) else p).detach().clone() for p in model.parameters()]


@case(2, reason="gradient")
@case(3, reason="gradient")
@case(4, reason="found_inf")
def a_step_skipped_by_one_process_is_skipped_by_all(folder, reason):
    cut = {2: None, 3: fsdp, 4: fsdp_and_tensor_parallel}[dist.get_world_size()]
    model = Net()
    if cut:
        cut(model)
    optimizer = optimizer_of(model, own=None if cut else dist.group.WORLD, skip_nonfinite=reason == "gradient")
    train(model, optimizer, 2, cut)
    before = local_weights(model)
    state = {number: {key: whole(value).clone() for key, value in fields.items()} for number, fields in optimizer.state_dict()["state"].items()}
    if reason == "gradient":
        poisoned = model.up.bias if dist.get_rank() == 1 else None  # of an elementwise rule; PRISM's matrices must rest too
        if poisoned is not None:
            poisoned.grad = torch.full_like(poisoned, torch.nan)
            assert not cut or poisoned._local_tensor.numel() > 0
    else:
        optimizer.found_inf = torch.tensor(float(dist.get_rank() == 2))
    optimizer.step()
    assert all(map(torch.equal, local_weights(model), before))
    for number, fields in optimizer.state_dict()["state"].items():
        assert all(torch.equal(whole(value), state[number][key]) for key, value in fields.items())
    assert optimizer.skipped == (1 if reason == "gradient" else 0)


@case(2, 3)
def gradients_that_only_some_processes_have_count_for_all(folder):
    """A process that lacks the gradient of its shard contributes zeros; a parameter without any gradient stays as it is."""
    model, plain = Net(), Net()
    fsdp(model)
    optimizer, reference = optimizer_of(model, "every"), optimizer_of(plain, "every")
    rests, uneven = "twin.weight", "up.weight"
    first = -(-24 // dist.get_world_size())  # rows of `up` that the first process holds
    for step in range(4):
        ours, theirs = gradients(fsdp, torch.float32, step), gradients(None, torch.float32, step)
        for (name, parameter), expected in zip(model.named_parameters(), plain.parameters(), strict=True):
            parameter.grad, expected.grad = (None, None) if name == rests else (ours[name], theirs[name].clone())
            if name == uneven and step == 2:
                expected.grad[first:] = 0
                parameter.grad = ours[name] if dist.get_rank() == 0 else None
        optimizer.step()
        reference.step()
    assert_equal(model, optimizer, plain, reference)
    assert torch.equal(whole(dict(model.named_parameters())[rests].detach()), dict(Net().named_parameters())[rests])


# ---- the plan and the traffic


@case(2, 3, 4)
def the_plan_is_the_same_everywhere_and_so_is_the_traffic(folder):
    size = dist.get_world_size()
    model = Net()
    fsdp(model)
    cases = [("prism", None, [12]), ("muon", None, [8]), ("prism", "bfloat16", [10]), ("every", None, [12, 8, 8, 12])]  # bytes an element at each step
    for options, comm_dtype, traffic in cases:
        optimizer = optimizer_of(model, options, comm_dtype=comm_dtype)
        plan = optimizer.plan()
        assert optimizer_of(model, options, comm_dtype=comm_dtype).plan() == plan
        plans = [None] * size
        dist.all_gather_object(plans, plan.replace(" (this one)", ""))
        assert len(set(plans)) == 1
        side = 8 if options == "muon" else 24  # the recommended setting forms the Gram matrix of the inputs
        assert any(line.split()[:5] == ["down.weight", "8", "×", "24", str(side)] for line in plan.splitlines())
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        for _ in traffic:
            optimizer.step()
        elements = 0  # that their owners do not hold
        owners = {line.split()[0]: int(line.split("to its owner")[1].split()[0]) for line in plan.splitlines() if "to its owner" in line}
        for name, owner in owners.items():
            shape, part = dict(model.named_parameters())[name.split(".split.")[0]].shape, name.partition(".split.")[2]
            rows, columns = shape[0], shape[1:].numel()
            begin, end = (int(part) * rows // 3, (int(part) + 1) * rows // 3) if part else (0, rows)
            chunk = -(-rows // size)
            held = max(0, min(end, (owner + 1) * chunk) - max(begin, owner * chunk))
            elements += (end - begin - held) * columns
        sent = torch.tensor(optimizer._engine.bytes_sent())
        dist.all_reduce(sent)
        assert len(owners) == 10
        assert sent == sum(traffic) * elements
        assert sum(int(line.split("sends ")[1].split()[0]) for line in plan.splitlines() if line.startswith("rank")) == max(traffic) * elements


@pytest.mark.parametrize("rule", traffic.RULES)
def test_the_traffic_of_64_ranks_is_the_formula(rule):
    """One layer of the 1B model with few columns. This process plays all ranks."""
    sizes = {"ranks": 64, "layers": 1, "scale": 128}
    each = [traffic.bytes_sent(rule, rank, **sizes) for rank in range(64)]
    sent = [one for one, _ in each]
    assert all(planned == sent for _, planned in each)
    assert sum(sent) == traffic.formula(rule, **sizes)


@case(4)
def replicas_do_not_talk_to_each_other_about_matrices(folder):
    model = Net()
    hsdp(model)
    plan = optimizer_of(model).plan()
    assert [line.split(":")[0].removesuffix(" (this one)") for line in plan.splitlines() if line.startswith("rank")] == ["rank 0", "rank 1"]


@case(2)
def different_models_are_an_error_and_not_a_hang(folder):
    mesh = world_mesh()
    names = ["a", "b"] if dist.get_rank() == 0 else ["b", "a"]
    text = "the 2 processes that share parameters gave their optimizers different ones: names, shapes, order"
    named = [(name, nn.Parameter(distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)]))) for name in names]
    with pytest.raises(ValueError, match=text):
        prism_optim.Prism(named)
    with pytest.raises(ValueError, match=text):
        prism_optim.Prism([(name, nn.Parameter(torch.ones(4, 4))) for name in names], own=dist.group.WORLD)
    optimizer = prism_optim.Prism([("first", nn.Parameter(torch.ones(4, 4)))], own=dist.group.WORLD)
    optimizer.add_param_group({"params": [(name, nn.Parameter(torch.ones(4, 4))) for name in names]})
    with pytest.raises(ValueError, match=text):
        optimizer.step()


# ---- real training, saving and loading


@case(2)
def a_real_backward_pass_trains(folder):
    """FSDP2 with gradients added up, not averaged: each process has half of the batch; accumulation in the second half of the steps."""
    x, y = torch.randn(8, 6, generator=torch.Generator().manual_seed(1)), torch.randn(8, 4, generator=torch.Generator().manual_seed(2))
    losses = []
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
    fully_shard(model, mesh=world_mesh())
    model.set_force_sum_reduction_for_comms(True)
    model.set_gradient_divide_factor(1.0)
    optimizer = prism_optim.Mixed(model, lr=0.05, aux_lr=0.01)
    rank = dist.get_rank()
    for step in range(20):
        for part in range(2 if step >= 10 else 1):
            model.set_requires_gradient_sync(part == 1 or step < 10)
            rows = slice(4 * rank, 4 * rank + 4)
            loss = (model(x[rows]) - y[rows]).square().sum() / 32
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss := loss.detach())
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert all(p.grad is None and p._local_tensor.grad is None for p in model.parameters())
    torch.manual_seed(0)
    one = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))  # one process with the whole batch
    optimizer = prism_optim.Mixed(one, lr=0.05, aux_lr=0.01)
    for step in range(20):
        for _ in range(2 if step >= 10 else 1):
            ((one(x) - y).square().sum() / 32).backward()
        optimizer.step()
        optimizer.zero_grad()
    for p, expected in zip(model.parameters(), one.parameters(), strict=True):
        torch.testing.assert_close(whole(p.detach()), expected.detach(), rtol=1e-3, atol=1e-4)


LOADED_BY = {2: 4, 3: 2}  # size of the world that loads: size of the world that saved
STEPS = {4: 0, 2: 2, 3: 4}


@case(2, 3, 4)
def a_checkpoint_continues_on_another_number_of_processes(folder):
    size = dist.get_world_size()
    for options in ("every", "soap", "muon"):
        cut = {4: fsdp_and_tensor_parallel, 2: tensor_parallel, 3: fsdp}[size]
        model = Net(seed=0 if size == 4 else size)
        cut(model)
        optimizer = optimizer_of(model, options)
        if size in LOADED_BY:
            load(model, optimizer, f"{folder}/{options}.{LOADED_BY[size]}")
        train(model, optimizer, 2, cut, first=STEPS[size])
        save(model, optimizer, f"{folder}/{options}.{size}")
        full = get_optimizer_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True))
        if dist.get_rank() == 0:
            torch.save(full, f"{folder}/{options}.{size}.full")


def parts_of(model, optimizer):
    return {"model": model.state_dict(), "optimizer": get_optimizer_state_dict(model, optimizer)}


def save(model, optimizer, folder):
    dcp.save(parts_of(model, optimizer), checkpoint_id=folder)


def load(model, optimizer, folder):
    parts = parts_of(model, optimizer)
    dcp.load(parts, checkpoint_id=folder)
    model.load_state_dict(parts["model"])
    set_optimizer_state_dict(model, optimizer, parts["optimizer"])


@pytest.fixture
def one_thread():  # like the processes, since sums depend on the number of threads
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("kind", ["sharded", "full"])
@pytest.mark.parametrize("options", ["every", "soap", "muon"])
def test_one_process_continues_what_four_two_and_three_trained(results, options, kind):
    folder = results["folder"]
    plain, model = Net(), Net(seed=5)
    reference, optimizer = optimizer_of(plain, options), optimizer_of(model, options)
    train(plain, reference, 8)
    load(model, optimizer, folder / f"{options}.3")
    if kind == "full":
        optimizer = optimizer_of(model, options)
        full = torch.load(folder / f"{options}.3.full", weights_only=False)
        set_optimizer_state_dict(model, optimizer, full, options=StateDictOptions(full_state_dict=True))
    train(model, optimizer, 2, first=6)
    assert_equal(model, optimizer, plain, reference)


@case(3)
def a_full_state_of_one_process_is_loaded_by_all(folder):
    """With set_optimizer_state_dict, from rank 0 alone, and with load_state_dict, whose tensors are whole."""
    plain = Net()
    reference = optimizer_of(plain, "every")
    train(plain, reference, 2)
    saved = copy.deepcopy(reference.state_dict())
    full = copy.deepcopy(get_optimizer_state_dict(plain, reference))
    weights = copy.deepcopy(plain.state_dict())
    train(plain, reference, 2, first=2)
    for way in ("load_state_dict", "set_optimizer_state_dict"):
        model = Net()
        model.load_state_dict(weights)
        fsdp(model)
        optimizer = optimizer_of(model, "every")
        if way == "load_state_dict":
            optimizer.load_state_dict(saved)
        else:
            given = full if dist.get_rank() == 0 else {}
            set_optimizer_state_dict(model, optimizer, given, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
        train(model, optimizer, 2, fsdp, first=2)
        assert_equal(model, optimizer, plain, reference)


# ---- other things that happen to parameters


@case(2)
def other_placements_work_through_a_whole_copy_and_say_so_once(folder):
    from torch.distributed.tensor.placement_types import _StridedShard

    mesh = world_mesh()
    whole_weight = torch.randn(8, 6, generator=torch.Generator().manual_seed(3))
    rows = torch.arange(8).view(2, 2, 2)[:, dist.get_rank()].flatten()  # every second pair of rows: no shard in one piece
    odd = [_StridedShard(0, split_factor=2)]
    make = lambda value: DTensor.from_local(value[rows].clone(), mesh, odd, run_check=False, shape=value.shape, stride=value.stride())  # noqa: E731
    plain, parameter = nn.Parameter(whole_weight.clone()), nn.Parameter(make(whole_weight))
    reference = prism_optim.Prism([("w", plain)])
    with pytest.warns(UserWarning, match=r"prism_optim: 'w' with placements .* is stepped through a whole copy on every process"):
        optimizer = prism_optim.Prism([("w", parameter)])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for step in range(3):
            plain.grad = torch.randn(8, 6, generator=torch.Generator().manual_seed(step))
            parameter.grad = make(plain.grad)
            reference.step()
            optimizer.step()
    assert torch.equal(parameter._local_tensor, plain[rows])


@case(2)
def state_follows_a_shard_that_is_replaced(folder):
    model, plain = Net(), Net()
    fsdp(model)
    optimizer, reference = optimizer_of(model, "ema"), optimizer_of(plain, "ema")
    train(plain, reference, 4)
    train(model, optimizer, 2, fsdp)
    for parameter in model.parameters():
        parameter._local_tensor = parameter._local_tensor.clone()
    train(model, optimizer, 2, fsdp, first=2)
    assert_equal(model, optimizer, plain, reference)


@case(2)
def parameters_swapped_for_shards_after_construction_are_followed(folder):
    """As accelerate does it: the optimizer is made first, and then its parameters are replaced."""
    model, plain = Net(), Net()
    optimizer, reference = optimizer_of(model), optimizer_of(plain)
    before = dict(model.named_parameters())
    fsdp(model)
    after = {before[name]: parameter for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        group["params"] = [after[parameter] for parameter in group["params"]]
    train(model, optimizer, 2, fsdp)
    train(plain, reference, 2)
    assert_equal(model, optimizer, plain, reference)
    assert all(isinstance(optimizer.state[p]["momentum"], DTensor) for p in [model.up.weight, model.experts])


@case(2, own=False)
@case(2, own=True)
def whole_parameters_beside_sharded_ones_train(folder, own):
    """Parameters of a replicated mesh, and plain tensors, whose work may be shared."""
    plain, model = Net(), Net()
    mesh = world_mesh()
    model.up.weight = nn.Parameter(distribute_tensor(model.up.weight.data, mesh, [Shard(0)]))
    model.down.weight = nn.Parameter(distribute_tensor(model.down.weight.data, mesh, [Replicate()]))
    reference, optimizer = optimizer_of(plain), optimizer_of(model, own=dist.group.WORLD if own else None)
    assert ("from its owner" in optimizer.plan()) == own
    for step in range(3):
        given = gradients(None, torch.float32, step)
        for (name, parameter), expected in zip(model.named_parameters(), plain.parameters(), strict=True):
            expected.grad = given[name]
            parameter.grad = distribute_tensor(given[name], mesh, parameter.placements) if isinstance(parameter, DTensor) else given[name]
        reference.step()
        optimizer.step()
    assert_equal(model, optimizer, plain, reference)


@case(2)
def what_is_not_possible_is_refused_by_name(folder):
    model = Net()
    fsdp(model)
    with pytest.raises(NotImplementedError, match="inspect: several processes share the parameters; inspect a run of one process"):
        optimizer = optimizer_of(model)
        train(model, optimizer, 1, fsdp)
        prism_optim.inspect(optimizer)
    with pytest.raises(ValueError, match="prism: 'up.weight' is shaped by one process for all, and their exchange cannot be captured"):
        prism_optim.Prism([("up.weight", model.up.weight)], capturable=True)
    with pytest.raises(TypeError, match="prism_optim: an optimizer whose state several processes share cannot be copied or pickled"):
        copy.deepcopy(optimizer)


# ---- on a GPU


ON_THE_GPU = ("prism", "instant", "ema", "every", "muon")  # rules with kernels
GPU_BYTES = {"prism": 4, "instant": 4, "ema": 4, "every": 4, "muon": 2}  # of an element on its way to the owner


@pytest.mark.gpu
@pytest.mark.parametrize("options", ON_THE_GPU)
def test_companions_do_not_change_what_the_kernels_compute(options):
    """A matrix alone, and in stacks of 2, 3 and 8: with several processes the stacks of an owner differ from those of one process."""
    kind, more = OPTIONS[options]["matrices"], {key: value for key, value in OPTIONS[options].items() if key not in ("matrices", "master_weights")}
    for shape in ((64, 64), (100, 36), (256, 512), (3, 48, 32), (16, 200)):
        alone = None
        for count in (1, 2, 3, 8):
            stack = [nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(i)).cuda()) for i in range(count)]
            stack.insert(count // 2, stack.pop(0))
            groups = [{"params": [(str(i), p) for i, p in enumerate(stack)], "optimizer": kind, **more}]
            optimizer = prism_optim.Mixed(groups)
            watched = stack[count // 2]
            for step in range(3):
                for i, p in enumerate(stack):
                    seed = 1000 + step if p is watched else 100 * step + i
                    p.grad = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).cuda()
                optimizer.step()
            result = [watched.detach(), *optimizer.state[watched].values()]
            alone = alone or result
            assert all(map(torch.equal, result, alone)), (shape, count)


def cuda_rows(model):
    """Rows of each parameter on the GPU, made without a collective."""
    mesh, size, rank = init_device_mesh("cuda", (dist.get_world_size(),)), dist.get_world_size(), dist.get_rank()
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            chunks = p.data.chunk(size)
            local = (chunks[rank] if rank < len(chunks) else p.data[:0]).clone().cuda()
            shard = DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=p.shape, stride=p.stride())
            module.register_parameter(name, nn.Parameter(shard))


def on_one_gpu(rank, size, folder):
    torch.cuda.set_device(0)
    for options in ON_THE_GPU:
        for cut in (cuda_rows, None):
            model = Net()
            if cut:
                cut(model)
            else:
                model.cuda()
            optimizer = optimizer_of(model, options, own=None if cut else dist.group.WORLD)
            for step in range(5):
                grads = filled(Net(), 100 + step)
                if cut:
                    cut(grads)
                else:
                    grads.cuda()
                for p, gradient in zip(model.parameters(), grads.parameters(), strict=True):
                    p.grad = gradient.detach()
                optimizer.step()
            assert "to its owner" in optimizer.plan() if cut else "from its owner" in optimizer.plan()
            weights = {name: (p._local_tensor if cut else p).detach().cpu() for name, p in model.named_parameters()}
            torch.save(weights, f"{folder}/{options}.{'cut' if cut else 'own'}.{rank}")
        torch.save(sent_for_one_matrix(options), f"{folder}/{options}.sent.{rank}")


def sent_for_one_matrix(options):
    """The bytes that this process sends at each of three steps of a 64×64 matrix."""
    model, sent = nn.ModuleDict({"hidden": nn.Linear(64, 64, bias=False)}), [0]
    cuda_rows(model)
    more = {key: value for key, value in OPTIONS[options].items() if key != "matrices"}
    optimizer = prism_optim.Mixed([{"params": list(model.named_parameters()), "optimizer": OPTIONS[options]["matrices"], **more}])
    for _ in range(3):
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        optimizer.step()
        sent.append(optimizer._engine.bytes_sent())
    return torch.tensor(sent).diff()


@pytest.fixture(scope="module")
def two_ranks_on_one_gpu(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    run(__file__, "on_one_gpu", 2, folder)
    return folder


@pytest.mark.gpu
@pytest.mark.parametrize("how", ["cut", "own"])
@pytest.mark.parametrize("options", ON_THE_GPU)
def test_two_ranks_on_one_gpu_train_as_one_process(two_ranks_on_one_gpu, options, how):
    """With gloo. The fp16 operands that travel are those that the kernels of one process form."""
    model = Net().cuda()
    optimizer = optimizer_of(model, options)
    for step in range(5):
        for p, gradient in zip(model.parameters(), filled(Net(), 100 + step).parameters(), strict=True):
            p.grad = gradient.detach().cuda()
        optimizer.step()
    parts = [torch.load(two_ranks_on_one_gpu / f"{options}.{how}.{rank}") for rank in range(2)]
    differing = {}
    for name, p in model.named_parameters():
        if how == "own":
            assert torch.equal(parts[0][name], parts[1][name])
        found = parts[0][name] if how == "own" else torch.cat([part[name] for part in parts])
        if not torch.equal(found, p.detach().cpu()):
            differing[name] = (found - p.detach().cpu()).abs().max().item()
    assert differing == {}


@pytest.mark.gpu
@pytest.mark.parametrize("options", ON_THE_GPU)
def test_operands_travel_to_their_owner_in_fp16(two_ranks_on_one_gpu, options):
    """Half of the matrix goes to the owner, and half of the update back, in float32."""
    sent = sum(torch.load(two_ranks_on_one_gpu / f"{options}.sent.{rank}") for rank in range(2))
    to = [GPU_BYTES[options], *(GPU_BYTES[options] if options != "every" else 2 for _ in range(2))]  # D only at the first of three steps
    assert sent.tolist() == [(bytes + 4) * 64 * 32 for bytes in to]


@pytest.mark.gpu
def test_one_process_with_nccl_trains_as_without(tmp_path):
    dist.init_process_group("nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        nets = [Net().cuda(), Net().cuda(), Net().cuda()]
        fully_shard(nets[1], mesh=init_device_mesh("cuda", (1,)))
        optimizers = [optimizer_of(nets[0]), optimizer_of(nets[1]), optimizer_of(nets[2], own=dist.group.WORLD)]
        for step in range(3):
            for net, optimizer in zip(nets, optimizers, strict=True):
                for p, gradient in zip(net.parameters(), filled(Net(), 100 + step).cuda().parameters(), strict=True):
                    value = gradient.detach()
                    p.grad = distribute_tensor(value, p.device_mesh, p.placements) if isinstance(p, DTensor) else value
                optimizer.step()
        for net in nets[1:]:
            for p, expected in zip(net.parameters(), nets[0].parameters(), strict=True):
                assert torch.equal(whole(p.detach()), expected.detach())
        dcp.save({"optimizer": get_optimizer_state_dict(nets[1], optimizers[1])}, checkpoint_id=tmp_path / "state")
    finally:
        dist.destroy_process_group()
