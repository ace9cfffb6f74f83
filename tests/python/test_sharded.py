"""DTensor parameters and replicas whose work is shared: what several gloo processes train equals what one process trains, bit for bit.

The cases of one world run in the same processes, one after the other; each is a test of its own.
"""

import copy
import datetime
import json
import os
import pathlib
import sys
import traceback
import warnings

import prism_optim
import pytest
import sharded
import sharded_replicas  # noqa: F401  registers its cases
import sharded_training
import torch
import torch.distributed as dist
from processes import run
from sharded import (
    CASES, OPTIONS, Net, assert_equal, assert_equal_state, case, columns, compared, fsdp, fsdp_and_tensor_parallel, gradients, hsdp, load,
    local_weights, optimizer_of, save, tensor_parallel, train, whole, world_mesh,
)  # fmt: skip
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import traffic  # noqa: E402


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
    for size in sharded_training.SAVED_AS:
        run(sharded_training.__file__, "saves", size, folder)
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


def equals_one_process(folder, layout, options="prism", steps=20):
    compared(getattr(sharded, layout), options, steps)


case(2, 3, 4, layout="fsdp")(equals_one_process)
case(2, 3, layout="columns")(equals_one_process)
case(2, layout="tensor_parallel")(equals_one_process)
for _layout in ("hsdp", "fsdp_and_tensor_parallel", "nested"):
    case(4, layout=_layout)(equals_one_process)
for _layout, _options in (("hsdp", "soap"), ("fsdp_and_tensor_parallel", "instant"), ("nested", "muon")):
    case(4, layout=_layout, options=_options, steps=6)(equals_one_process)
for _layout, _options in (("columns", "ema"), ("columns", "soap"), ("tensor_parallel", "every")):
    case(2, layout=_layout, options=_options, steps=6)(equals_one_process)


def equals_one_process_with(folder, options):
    compared(fsdp, options, steps=20 if options in ("instant", "ema", "muon", "soap") else 6)


for _options in OPTIONS:
    case(3, options=_options)(equals_one_process_with)


@case(2, 4)
def sixteen_bit_weights_with_masters_equal_one_process(folder):
    compared(fsdp if dist.get_world_size() == 2 else fsdp_and_tensor_parallel, dtype=torch.bfloat16, master_weights=True)


CLASSES = [getattr(prism_optim, name) for name in ("Prism", "Muon", "TikhonovMuon", "SSD", "RMSspectral", "ADAspectral", "Shampoo", "SOAP")]
ELEMENTWISE = [getattr(prism_optim, name) for name in ("AdamW", "Adam", "AdaGrad", "RMSprop")]


@case(2, 3)
def every_class_takes_shards(folder):
    for kind in CLASSES + ELEMENTWISE:
        plain, model = Net(), Net()
        fsdp(model)
        chosen = [[(name, p) for name, p in net.named_parameters() if kind in ELEMENTWISE or name in MATRICES] for net in (plain, model)]
        reference, optimizer = kind(chosen[0], lr=0.05), kind(chosen[1], lr=0.05)
        train(plain, reference, 3)
        train(model, optimizer, 3, fsdp)
        assert_equal(model, optimizer, plain, reference)
        assert ("to its owner" in optimizer.plan()) == (kind in CLASSES)
        assert (optimizer._engine.bytes_sent() > 0) == (kind in CLASSES)


MATRICES = ("up.weight", "down.weight", "twin.weight", "wide.weight", "thin.weight", "attention.out_proj.weight")


@case(2, own=False)
@case(2, own=True)
def many_matrices_of_one_shape_equal_one_process(folder, own):
    """Matrices so large that each is a round of its own for its owner."""
    weights = [torch.randn(8, 400_000, generator=torch.Generator().manual_seed(i)) for i in range(5)]
    make = lambda value: value.clone() if own else distribute_tensor(value, world_mesh(), [Shard(0)])  # noqa: E731
    plain, parts = ([nn.Parameter(how(value)) for value in weights] for how in (torch.clone, make))
    options = {"covariance": "ema", "side": "short", "lr": 0.05}
    reference = prism_optim.Prism([(str(i), p) for i, p in enumerate(plain)], **options)
    optimizer = prism_optim.Prism([(str(i), p) for i, p in enumerate(parts)], own=dist.group.WORLD if own else None, **options)
    for step in range(3):
        for i, (p, expected) in enumerate(zip(parts, plain, strict=True)):
            has_gradient = (step, i) != (1, 2)
            expected.grad = torch.randn(expected.shape, generator=torch.Generator().manual_seed(100 * step + i)) if has_gradient else None
            p.grad = make(expected.grad) if has_gradient else None
        reference.step()
        optimizer.step()
    for p, expected in zip(parts, plain, strict=True):
        assert torch.equal(whole(p.detach()), expected.detach())
    assert_equal_state(optimizer, reference)


# ---- what one process decides holds for all


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
        sides = ["8", "to"] if options == "muon" else ["8,", "24"]  # the recommended setting also needs a root of the inputs' covariance
        assert any(line.split()[:6] == ["down.weight", "8", "×", "24", *sides] for line in plan.splitlines())
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
    here = dist.get_rank()
    ones = lambda *shape: nn.Parameter(distribute_tensor(torch.ones(shape), mesh, [Shard(0)]))  # noqa: E731
    shapes = [("a", ones(4, 4 + 4 * here))]
    more = [("a", ones(4, 4)), ("b", ones(4, 4))][: 1 + here]
    for different, options in ((shapes, {}), (more, {}), ([("a", ones(4, 4))], {"gamma": 1.0 + here})):
        with pytest.raises(ValueError, match=text):
            prism_optim.Prism(different, **options)
    turned = DeviceMesh("cpu", [1, 0] if here else [0, 1])  # both processes believe that they hold the first rows
    part = DTensor.from_local(torch.ones(2, 4), turned, [Shard(0)], run_check=False)
    with pytest.raises(ValueError, match=text):
        prism_optim.Prism([("a", nn.Parameter(part))])


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


@pytest.fixture
def one_thread():  # like the processes, since sums depend on the number of threads
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("saved_by", sharded_training.SAVED_AS)
def test_one_process_continues_what_any_number_saved(results, saved_by):
    sharded_training.what_some_processes_saved_continues(results["folder"], saved_by, cut="whole")


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
    """As accelerate does it: the optimizer is made first, placeholders free its parameters, and then shards take their places."""
    model, plain = Net(), Net()
    optimizer, reference = optimizer_of(model), optimizer_of(plain)
    names = {parameter: name for name, parameter in model.named_parameters()}
    holders = {}
    for group in optimizer.param_groups:
        for place, parameter in enumerate(group["params"]):
            group["params"][place] = torch.empty(1, dtype=parameter.dtype)
            holders[group["params"][place]] = names[parameter]
    fsdp(model)
    after = dict(model.named_parameters())
    for group in optimizer.param_groups:
        group["params"] = [after[holders[holder]] for holder in group["params"]]
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
