"""The contract of torch.optim, for every class of prism_optim; what torch promises is tested on torch's own classes beside them."""

import collections
import copy
import inspect
import io
import itertools
import pickle
import warnings

import prism_optim
import pytest
import torch
from optim_cases import CASES, assert_same, every_class, parameters, set_gradients, states, torch_too, train, values
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook

# ---- 1. direction


@torch_too
def test_a_quadratic_falls_to_a_tenth(case):
    named = parameters(case)
    optimizer = case.make(named)
    scheduler = lr_scheduler.LinearLR(optimizer, 1.0, 0.01, 60)

    def loss():
        return sum(p.square().sum() for _, p in named) / 2

    first = loss().item()
    for _ in range(60):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        scheduler.step()
    assert loss().item() < 0.1 * first


@torch_too
def test_maximize_climbs_where_the_negated_gradient_descends(case):
    if not case.has("maximize"):
        pytest.skip("torch's class has no such option")
    up, down = parameters(case), parameters(case)
    climbing, descending = case.make(up, maximize=True), case.make(down)
    for step in range(3):
        set_gradients(up, step)
        for (_, p), (_, q) in zip(up, down, strict=True):
            q.grad = -p.grad
        climbing.step()
        descending.step()
    assert_same(values(up), values(down))


@torch_too
def test_a_closure_runs_once_with_gradients_and_its_value_comes_back(case):
    named = parameters(case)
    optimizer = case.make(named)
    calls = []

    def closure():
        calls.append(torch.is_grad_enabled())
        optimizer.zero_grad()
        loss = sum(p.square().sum() for _, p in named)
        loss.backward()
        return loss

    before = values(named)
    with torch.no_grad():
        losses = [optimizer.step(closure) for _ in range(2)]
    assert calls == [True, True]
    assert losses[1] != losses[0] or case.name == "SOAP"  # whose first step only makes its basis
    assert all((a != b).any() for a, b in zip(before, values(named), strict=True))
    assert optimizer.step() is None


@torch_too
def test_a_step_writes_weights_in_place_and_leaves_autograd_as_it_was(case):
    named = parameters(case)
    optimizer = case.make(named)
    places = [p.data_ptr() for _, p in named]
    train(optimizer, named, 2)
    assert places == [p.data_ptr() for _, p in named]
    assert all(p.requires_grad and p.is_leaf and p._version > 0 for _, p in named)
    assert torch.is_grad_enabled()


@torch_too
def test_a_step_without_any_gradient_changes_nothing(case):
    named = parameters(case)
    optimizer = case.make(named)
    optimizer.step()
    optimizer.zero_grad()
    assert_same(values(named), values(parameters(case)))


@torch_too
def test_the_layout_of_weights_and_gradients_does_not_matter(case):
    plain, strided = parameters(case), parameters(case)
    for _, p in strided:
        p.data = p.data.mT.contiguous().mT if p.dim() > 1 else p.data.repeat_interleave(2)[::2]
    first, second = case.make(plain), case.make(strided)
    for _ in range(2):
        for (_, p), (_, q) in zip(plain, strided, strict=True):
            q.grad = torch.linspace(-1, 1, p.shape[-1]).expand(p.shape)
            p.grad = q.grad.contiguous()
        first.step()
        second.step()
    torch.testing.assert_close(values(strided), values(plain))


@torch_too
def test_weights_of_two_types_share_a_group(case):
    named = parameters(case)
    named[0][1].data = named[0][1].data.double()
    alone = parameters(case)[1:]
    train(case.make(named), named, 2)
    optimizer = case.make(alone)
    for step in range(2):
        set_gradients([named[0], *alone], 100 + step)
        optimizer.step()
    torch.testing.assert_close(values(named)[1:], values(alone))
    assert named[0][1].dtype == torch.float64


@torch_too
def test_each_parameter_may_be_stepped_inside_backward(case):
    named, plain = parameters(case), parameters(case)
    optimizers = {p: case.make([p]) for _, p in named}

    def step(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for _, p in named:
        p.register_post_accumulate_grad_hook(step)
    optimizer = case.make(plain)
    for _ in range(2):
        sum(p.square().sum() for _, p in named).backward()
        optimizer.zero_grad()
        sum(p.square().sum() for _, p in plain).backward()
        optimizer.step()
    torch.testing.assert_close(values(named), values(plain), rtol=1e-4, atol=1e-5)


# ---- 2. equivalence of implementations


@every_class
def test_a_bucket_computes_what_its_parameters_would_alone(case):
    together, alone = parameters(case), parameters(case)
    one = case.make(together)
    many = [case.make([pair]) for pair in alone]
    for step in range(3):
        set_gradients(together, step)
        set_gradients(alone, step)
        one.step()
        for optimizer in many:
            optimizer.step()
    torch.testing.assert_close(values(together), values(alone), rtol=1e-4, atol=1e-5)


@torch_too
def test_a_tensor_learning_rate_is_the_same_number_and_stays_that_tensor(case):
    plain, named = parameters(case), parameters(case)
    lr = torch.tensor(case.lr, dtype=torch.float64)
    one, two = case.make(plain), case.make([{"params": named[:1]}, {"params": named[1:]}], lr=lr)
    schedulers = [lr_scheduler.ExponentialLR(optimizer, 0.5) for optimizer in (one, two)]
    for step in range(3):
        train(one, plain, 1, step)
        train(two, named, 1, step)
        if step < 2:
            for scheduler in schedulers:
                scheduler.step()
    torch.testing.assert_close(values(plain), values(named), rtol=1e-4, atol=1e-5)
    if case.ours:
        assert all(group["lr"] is lr for group in two.param_groups)
    lr.zero_()
    for group in two.param_groups:
        group["lr"] = lr
    before = values(named)
    train(two, named, 1)
    assert_same(values(named), before)


@torch_too
def test_gradients_kept_as_zeros_or_as_none_train_alike(case):
    results = []
    for set_to_none in (True, False):
        named = parameters(case)
        optimizer = case.make(named)
        for _ in range(3):
            optimizer.zero_grad(set_to_none=set_to_none)
            sum((p * p).sum() for _, p in named).backward()
            optimizer.step()
        results.append(values(named))
    assert_same(*results)


@every_class
def test_half_precision_weights_follow_the_float32_ones(case):
    wide, narrow = parameters(case), parameters(case, dtype=torch.bfloat16)
    with torch.no_grad():
        for (_, p), (_, q) in zip(wide, narrow, strict=True):
            p.copy_(q)
    first, second = case.make(wide), case.make(narrow, master_weights=True)
    for step in range(3):
        set_gradients(narrow, step)
        for (_, p), (_, q) in zip(wide, narrow, strict=True):
            p.grad = q.grad.float()
        first.step()
        second.step()
    for (_, p), (_, q) in zip(wide, narrow, strict=True):
        assert_same(p.detach().bfloat16(), q.detach())
        assert all(value.dtype == torch.float32 for value in second.state[q].values())


@every_class
def test_weights_loaded_after_construction_replace_their_masters(case):
    """As `model.load_state_dict` writes them, before the first step and between steps."""
    named, other = parameters(case, dtype=torch.bfloat16), parameters(case, dtype=torch.bfloat16, seed=1)
    late, early = case.make(named, master_weights=True), None
    for step in range(3):
        if step in (0, 2):
            with torch.no_grad():
                for (_, p), (_, q) in zip(named, other, strict=True):
                    p.copy_(q)
        if step == 0:
            early = case.make(other, master_weights=True)
        set_gradients(named, step)
        set_gradients(other, step)
        late.step()
        early.step()
        assert_same(values(named), values(other))
        if step > 0:  # SOAP's first step leaves weights and masters alone
            assert_same(states(late), states(early))
    with torch.no_grad():
        for _, p in named:
            p.fill_(3.0)
    for group in late.param_groups:
        group["lr"] = 0.0
    late.step()
    assert all((p == 3).all() and (late.state[p]["master"] == 3).all() for _, p in named)


# ---- 3. hyperparameters


@every_class
def test_defaults_are_those_of_the_signature_and_of_the_library(case):
    named = parameters(case)
    optimizer = case.cls(named)
    signature = inspect.signature(case.cls.__init__).parameters
    group = optimizer.param_groups[0]
    for name, value in prism_optim._library.defaults(case.cls.kind).items():
        assert signature[name].default == value == group[name], name
        assert name in case.cls.__doc__


@torch_too
def test_groups_override_options_and_may_come_later(case):
    named = parameters(case)
    optimizer = case.make([{"params": named[:1], "lr": 0.5}, {"params": named[1:2]}])
    optimizer.add_param_group({"params": named[2:], "weight_decay": 0.25})
    assert [g["lr"] for g in optimizer.param_groups] == [0.5, case.lr, case.lr]
    assert optimizer.param_groups[2]["weight_decay"] == 0.25
    before = values(named)
    train(optimizer, named, 2)  # SOAP's first step only makes its basis
    assert all((a != b).any() for a, b in zip(before, values(named), strict=True))


@torch_too
def test_defaults_hold_every_option_and_groups_repeat_them(case):
    optimizer = case.make(parameters(case))
    options = set(inspect.signature(case.cls).parameters) - {"params", "own", "comm_dtype"}
    assert options <= set(optimizer.defaults) and options <= set(optimizer.param_groups[0])
    assert optimizer.defaults["lr"] == case.lr


@pytest.mark.parametrize("case", [c for c in CASES if str(c) in ("AdamW", "Adam", "AdaGrad", "RMSprop", "Muon")], ids=str)
def test_options_are_positional_as_in_torch(case):
    theirs = getattr(torch.optim, {"AdaGrad": "Adagrad"}.get(case.name, case.name))
    names = [name for name, p in inspect.signature(theirs).parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD][1:]
    shared = list(itertools.takewhile(case.has, names))
    given = {"lr": 0.5, "betas": (0.5, 0.6), "eps": 1e-3, "weight_decay": 0.25, "momentum": 0.75, "nesterov": False, "amsgrad": True}
    given |= {"lr_decay": 0.125, "initial_accumulator_value": 0.5, "alpha": 0.7, "centered": True, "maximize": True, "capturable": False}
    optimizer = case.cls(parameters(case), *(given[name] for name in shared))
    assert {name: optimizer.param_groups[0][name] for name in shared} == {name: given[name] for name in shared}
    assert shared[:2] == names[:2]


@torch_too
def test_what_is_no_list_of_parameters_is_refused_as_by_torch(case):
    weight = torch.nn.Parameter(torch.ones(2, 2))
    for params, error, text in [
        (weight, TypeError, "should be an iterable of Tensors or dicts"),
        ([], ValueError, "empty parameter list"),
        ([{"params": {weight}}], TypeError, "ordered collections"),
        ([3.0], TypeError, "can only optimize Tensors"),
        ([weight * 2], ValueError, "can't optimize a non-leaf Tensor"),
        ([{"params": [weight]}, {"params": [weight]}], ValueError, "some parameters appear in more than one parameter group"),
        ([("a", weight), torch.nn.Parameter(torch.ones(2, 2))], ValueError, "with/without names"),
        ([{"params": [("a", weight)]}, {"params": [torch.nn.Parameter(torch.ones(2, 2))]}], ValueError, "with/without names"),
    ]:
        with pytest.raises(error, match=text):
            case.make(params)


@torch_too
def test_a_group_that_cannot_be_added_leaves_the_others_as_they_are(case):
    named = parameters(case)
    optimizer = case.make([{"params": named[:2]}])
    with pytest.raises(TypeError, match="param_group must be a dict"):
        optimizer.add_param_group([named[2][1]])
    with pytest.raises(ValueError, match="some parameters appear in more than one parameter group"):
        optimizer.add_param_group({"params": [("again", named[1][1])]})
    assert len(optimizer.param_groups) == 1
    optimizer.add_param_group({"params": named[2:]})
    train(optimizer, named, 1)
    other = parameters(case)
    train(case.make([{"params": other[:2]}, {"params": other[2:]}]), other, 1)
    assert_same(values(named), values(other))


@torch_too
def test_one_tensor_and_no_tensor_are_groups(case):
    named, other = parameters(case), parameters(case)
    optimizer = case.make([{"params": named[0][1]}, {"params": []}, {"params": (p for _, p in named[1:])}])
    train(optimizer, named, 2)
    train(case.make([{"params": [other[0][1]]}, {"params": [p for _, p in other[1:]]}]), other, 2)
    assert_same(values(named), values(other))
    assert [len(group["params"]) for group in optimizer.state_dict()["param_groups"]] == [1, 0, len(named) - 1]


@torch_too
def test_duplicate_parameters_warn(case):
    named, plain = parameters(case), parameters(case)
    with pytest.warns(UserWarning, match="optimizer contains a parameter group with duplicate parameters"):
        optimizer = case.make([p for _, p in named] + [named[0][1]])
    if case.ours:  # trained once
        train(optimizer, named, 2)
        train(case.make([p for _, p in plain]), plain, 2)
        assert_same(values(named), values(plain))


@torch_too
def test_options_edited_in_a_group_hold_from_the_next_step(case):
    edited, made = parameters(case), parameters(case)
    optimizer = case.make(edited)
    for key, value in {"lr": case.lr / 2, "weight_decay": 0.25, "betas": (0.5, 0.6), "momentum": 0.5, "eps": 1e-3}.items():
        if key in optimizer.param_groups[0] and (key != "momentum" or optimizer.param_groups[0][key]):
            optimizer.param_groups[0][key] = value
    now = {key: value for key, value in optimizer.param_groups[0].items() if case.has(key) and key != "params"}
    train(optimizer, edited, 2)
    train(case.cls(made, **now), made, 2)
    assert_same(values(edited), values(made))


@torch_too
def test_groups_carry_keys_of_their_own(case):
    named = parameters(case)
    own = {"lr_scale": 0.5, "name": "first", "max_lr": 1.0, "initial_lr": 0.5}
    optimizer = case.make([{"params": named[:1], **own}, {"params": named[1:]}])
    train(optimizer, named, 1)
    other = case.make([{"params": parameters(case)[:1]}, {"params": parameters(case)[1:]}])
    other.load_state_dict(optimizer.state_dict())
    for one in (optimizer, other):
        assert {key: one.param_groups[0][key] for key in own} == own
        assert "lr_scale" not in one.param_groups[1]
    plain = parameters(case)
    train(case.make([{"params": plain[:1]}, {"params": plain[1:]}]), plain, 1)
    assert_same(values(named), values(plain))


def test_misspelled_options_are_refused_with_the_nearest_name():
    weight = torch.nn.Parameter(torch.ones(2, 2))
    for key, near in {"weight_deccay": "weight_decay", "momentun": "momentum", "nesterv": "nesterov", "gammas": "gamma"}.items():
        with pytest.raises(ValueError, match=rf"prism: unknown option '{key}' in a parameter group; did you mean '{near}'\?"):
            prism_optim.Prism([{"params": [weight], key: 1}])
    with pytest.raises(ValueError, match="prism: unknown option 'betas' in a parameter group; 'betas' is an option of other optimizers"):
        prism_optim.Prism([{"params": [weight], "betas": (0.9, 0.9)}])


# ---- 4. changes made by hand to groups and state



@torch_too
def test_a_group_that_is_taken_out_rests_until_it_is_put_back(case):
    named, other = parameters(case), parameters(case)
    optimizer = case.make([{"params": named[:1]}, {"params": named[1:]}])
    resting = case.make([{"params": other[:1]}, {"params": other[1:]}])
    for step in range(4):
        if step == 1:
            group = optimizer.param_groups.pop(0)
        if step == 3:
            optimizer.param_groups.insert(0, group)
        set_gradients(named, step)
        set_gradients(other, step)
        if step in (1, 2):
            other[0][1].grad = None
        optimizer.step()
        resting.step()
    assert_same(values(named), values(other))
    assert optimizer.state_dict()["state"].keys() == resting.state_dict()["state"].keys()


@torch_too
def test_groups_of_another_optimizer_may_join(case):
    named, other = parameters(case), parameters(case)
    one, two = case.make(named[:1], lr=case.lr / 2), case.make(named[1:])
    apart = [case.make(other[:1], lr=case.lr / 2), case.make(other[1:])]
    one.param_groups.extend(two.param_groups)
    for step in range(2):
        set_gradients(named, step)
        set_gradients(other, step)
        one.step()
        for optimizer in apart:
            optimizer.step()
    torch.testing.assert_close(values(named), values(other))


@torch_too
def test_groups_assigned_as_a_whole_are_taken_over(case):
    """Lightning's BaseFinetuning does so before it loads the state of a run that had unfrozen layers."""
    named, other = parameters(case), parameters(case)
    whole = case.make([{"params": named[:1]}, {"params": named[1:]}])
    train(whole, named, 1)
    optimizer = case.make(other[:1])
    by_name = dict(other)
    optimizer.param_groups = [
        {key: value for key, value in group.items() if key != "params"} | {"params": [by_name[name] for name in group["param_names"]]}
        for group in whole.param_groups
    ]
    optimizer.load_state_dict(copy.deepcopy(whole.state_dict()))
    with torch.no_grad():
        for (_, p), (_, q) in zip(named, other, strict=True):
            q.copy_(p)
    train(whole, named, 2)
    train(optimizer, other, 2)
    assert_same(values(named), values(other))


RESETS = {
    "del state[p]": lambda optimizer, p: optimizer.state.pop(p, None),
    "state[p] = {}": lambda optimizer, p: optimizer.state.__setitem__(p, {}),
    "state[p].clear()": lambda optimizer, p: optimizer.state[p].clear(),
}


@torch_too
@pytest.mark.parametrize("reset", RESETS.values(), ids=RESETS)
def test_deleted_state_starts_anew(case, reset):
    named, other, restarted = parameters(case), parameters(case), parameters(case)
    optimizer, untouched = case.make(named), case.make(other)
    train(optimizer, named, 2)
    train(untouched, other, 2)
    restarted[0][1].data.copy_(named[0][1].data)
    reset(optimizer, named[0][1])
    train(optimizer, named, 2, 200)
    train(untouched, other, 2, 200)
    train(case.make(restarted[:1]), restarted[:1], 2, 200)
    torch.testing.assert_close(values(named)[0], values(restarted)[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(values(named)[1:], values(other)[1:], rtol=1e-5, atol=1e-6)


@torch_too
def test_all_state_may_be_dropped_at_once(case):
    for nothing in [collections.defaultdict(dict), *([{}] if case.ours else [])]:
        named, fresh = parameters(case), parameters(case)
        optimizer = case.make(named)
        train(optimizer, named, 2)
        optimizer.state = nothing
        for (_, p), (_, q) in zip(named, fresh, strict=True):
            q.data.copy_(p.data)
        train(optimizer, named, 2, 200)
        train(case.make(fresh), fresh, 2, 200)
        assert_same(values(named), values(fresh))


@torch_too
@pytest.mark.parametrize("larger", [False, True], ids=["of the same shape", "of another shape"])
def test_a_parameter_put_in_place_of_another_starts_with_fresh_state(case, larger):
    if case.name == "SSD" and not larger:
        pytest.skip("has no state")
    named, kept = parameters(case), parameters(case)
    optimizer, untouched = case.make(named), case.make(kept)
    train(optimizer, named, 2)
    train(untouched, kept, 2)
    start = torch.linspace(-1, 1, 32 if larger else 24).view(-1, 4)
    fresh, alone = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    optimizer.param_groups[0]["params"][0] = fresh
    optimizer.state.pop(named[0][1], None)
    named[0] = ("layer0", fresh)
    for step in range(2):
        set_gradients(named, 200 + step)
        for (_, p), (_, q) in zip(named[1:], kept[1:], strict=True):
            q.grad = p.grad
        kept[0][1].grad = None
        optimizer.step()
        untouched.step()
    separate = case.make([alone])
    for step in range(2):
        set_gradients([("layer0", alone)], 200 + step)
        separate.step()
    torch.testing.assert_close(fresh.detach(), alone.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(values(named)[1:], values(kept)[1:], rtol=1e-5, atol=1e-6)
    saved = optimizer.state_dict()["state"]
    assert all(key < len(named) for key in saved)


@every_class
def test_a_parameter_that_leaves_keeps_its_state_only_if_it_was_stepped(case):
    """Sharding a model replaces all parameters of its optimizer: the state of the old ones must not stay in memory."""
    named = parameters(case)
    optimizer = case.make(named)
    first, second = (torch.nn.Parameter(named[0][1].detach().clone()) for _ in range(2))
    old = optimizer.param_groups[0]["params"][0]
    optimizer.param_groups[0]["params"][0] = first
    train(optimizer, [("layer0", first), *named[1:]], 1)
    assert old not in optimizer.state
    momentum = {key: value.clone() for key, value in optimizer.state[first].items()}
    optimizer.param_groups[0]["params"][0] = second
    optimizer.step()
    assert optimizer.state[first].keys() == momentum.keys()
    optimizer.param_groups[0]["params"][0] = first
    optimizer.state_dict()
    for key, value in momentum.items():
        torch.testing.assert_close(optimizer.state[first][key], value, rtol=0, atol=0)


@every_class
def test_hand_made_groups_that_are_incomplete_are_refused_with_a_sentence(case):
    named = parameters(case)
    optimizer = case.make(named[:1])
    optimizer.param_groups.append({"params": [named[1][1]]})
    set_gradients(named, 1)
    before = values(named)
    with pytest.raises(ValueError, match=r"a group of param_groups has no 'optimizer'; add it with add_param_group\(group\)"):
        optimizer.step()
    optimizer.param_groups.pop()
    optimizer.param_groups[0]["params"].append(named[1][1])
    text = f"{case.cls.kind}: a group has 2 parameters and 1 names; keep 'param_names' beside 'params', or use add_param_group"
    with pytest.raises(ValueError, match=text):
        optimizer.step()
    optimizer.param_groups[0]["params"].pop()
    for option in ("weight_decay", "capturable", "params"):
        value = optimizer.param_groups[0].pop(option)
        with pytest.raises(ValueError, match=rf"a group of param_groups has no '{option}'; add it with add_param_group\(group\)"):
            optimizer.step()
        optimizer.param_groups[0][option] = value
    assert_same(values(named), before)
    optimizer.step()


# ---- schedulers


def scheduler_of(name, optimizer):
    cls = getattr(lr_scheduler, name)
    momentum = "momentum" in optimizer.defaults or "betas" in optimizer.defaults
    arguments = {
        "LambdaLR": {"lr_lambda": lambda step: 0.9**step}, "MultiplicativeLR": {"lr_lambda": lambda step: 0.9}, "StepLR": {"step_size": 1},
        "MultiStepLR": {"milestones": [1]}, "ExponentialLR": {"gamma": 0.9}, "CosineAnnealingLR": {"T_max": 4}, "PolynomialLR": {},
        "CyclicLR": {"base_lr": 0.01, "max_lr": 0.1, "cycle_momentum": momentum}, "CosineAnnealingWarmRestarts": {"T_0": 2},
        "OneCycleLR": {"max_lr": 0.1, "total_steps": 8, "cycle_momentum": momentum},
        "ChainedScheduler": {"schedulers": [lr_scheduler.ExponentialLR(optimizer, 0.9)]},
        "SequentialLR": {"schedulers": [lr_scheduler.ConstantLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)], "milestones": [1]},
        "ConstantLR": {}, "LinearLR": {}, "ReduceLROnPlateau": {"patience": 0},
    }[name]  # fmt: skip
    return cls(**arguments) if name == "ChainedScheduler" else cls(optimizer, **arguments)


def advance(scheduler):
    scheduler.step(1.0) if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else scheduler.step()


CYCLED = ("lr", "momentum", "betas")
SCHEDULERS = [name for name in lr_scheduler.__all__ if name not in ("LRScheduler", "_LRScheduler")]
some_classes = pytest.mark.parametrize("case", [c for c in CASES if str(c) in ("Prism", "AdamW", "Shampoo")], ids=str)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@some_classes
def test_what_a_scheduler_sets_is_what_the_step_uses(case, scheduler):
    named, other = parameters(case), parameters(case)
    optimizer = case.make(named)
    made = scheduler_of(scheduler, optimizer)
    for step in range(4):
        set_gradients(named, step)
        replay = case.make(other, **{key: value for key, value in optimizer.param_groups[0].items() if key in CYCLED})
        replay.load_state_dict({"state": optimizer.state_dict()["state"], "param_groups": replay.state_dict()["param_groups"]})
        for (_, p), (_, q) in zip(named, other, strict=True):
            q.data.copy_(p.data)
            q.grad = p.grad.clone()
        optimizer.step()
        replay.step()
        assert_same(values(named), values(other))
        advance(made)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@some_classes
def test_a_scheduler_sets_here_what_it_sets_in_torch_and_goes_back_with_its_state(case, scheduler):
    def course(optimizer, made, steps):
        result = []
        for _ in range(steps):
            optimizer.step()
            advance(made)
            group = optimizer.param_groups[0]
            result.append((group["lr"], group["betas"][0] if "betas" in group else group.get("momentum")))
        return result

    optimizer = case.make(parameters(case), lr=0.1)
    cls, key = (torch.optim.AdamW, "betas") if "betas" in optimizer.defaults else (torch.optim.SGD, "momentum")
    theirs = cls([torch.nn.Parameter(torch.ones(1))], lr=0.1, **{key: optimizer.defaults.get(key, 0)})
    ours, reference = scheduler_of(scheduler, optimizer), scheduler_of(scheduler, theirs)
    first = course(optimizer, ours, 2)
    saved = copy.deepcopy((optimizer.state_dict(), ours.state_dict()))
    rest = course(optimizer, ours, 4)
    expected = course(theirs, reference, 6)
    assert [lr for lr, _ in first + rest] == pytest.approx([lr for lr, _ in expected])
    if {"momentum", "betas"} & set(optimizer.defaults):
        assert [momentum for _, momentum in first + rest] == pytest.approx([momentum for _, momentum in expected])
    optimizer.load_state_dict(saved[0])
    ours.load_state_dict(saved[1])
    assert course(optimizer, ours, 4) == rest


@pytest.mark.parametrize("case", [c for c in CASES if c.name != "RMSprop"], ids=str)  # whose buffers appear in the next test
def test_one_cycle_moves_momentum_or_says_that_there_is_none(case):
    optimizer = case.make(parameters(case))
    if not {"momentum", "betas"} & set(optimizer.defaults):
        with pytest.raises(ValueError, match="optimizer must support momentum"):
            lr_scheduler.OneCycleLR(optimizer, 0.1, 8)
        lr_scheduler.OneCycleLR(optimizer, 0.1, 8, cycle_momentum=False)
        return
    scheduler = lr_scheduler.OneCycleLR(optimizer, 0.1, 8)
    optimizer.step()
    scheduler.step()
    group = optimizer.param_groups[0]
    assert 0.85 < (group["betas"][0] if "betas" in group else group["momentum"]) < 0.95


def test_buffers_appear_when_options_begin_to_need_them():
    named, plain = parameters(CASES[13]), parameters(CASES[13])
    optimizer = prism_optim.RMSprop(named, lr=0.05)
    theirs = torch.optim.RMSprop([p for _, p in plain], lr=0.05)
    for step, options in enumerate([{}, {"momentum": 0.9}, {"centered": True}, {}]):
        optimizer.param_groups[0].update(options)
        theirs.param_groups[0].update(options)
        if options == {"centered": True}:  # torch's buffer must be made by hand
            for p in theirs.state:
                theirs.state[p]["grad_avg"] = torch.zeros_like(p)
        if options == {"momentum": 0.9}:
            for p in theirs.state:
                theirs.state[p]["momentum_buffer"] = torch.zeros_like(p)
        train(optimizer, named, 1, step)
        train(theirs, plain, 1, step)
        torch.testing.assert_close(values(named), values(plain), rtol=1e-4, atol=1e-5)


# ---- 5. degenerate gradients


@torch_too
def test_a_parameter_without_gradient_and_its_state_stay(case):
    named = parameters(case)
    optimizer = case.make(named, weight_decay=0.1)
    train(optimizer, named, 1)
    set_gradients(named, 5)
    named[0][1].grad = None
    before, state = values(named), states(optimizer)
    optimizer.step()
    assert_same(values(named)[0], before[0])
    assert_same(states(optimizer)[0], state[0])
    assert (values(named)[1] != before[1]).any()


@every_class
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e15])
def test_zero_tiny_and_huge_gradients_keep_weights_finite(case, size):
    named = parameters(case)
    optimizer = case.make(named, lr=1e-3)
    before = values(named)
    for step in range(2):
        set_gradients(named, step)
        for _, p in named:
            p.grad.mul_(size)
        optimizer.step()
    assert all(p.isfinite().all() for _, p in named)
    if size == 0 and not optimizer.param_groups[0]["weight_decay"]:
        assert_same(values(named), before)


@every_class
def test_gradients_are_only_read(case):
    named = parameters(case)
    optimizer = case.make(named, weight_decay=0.1, maximize=True)
    set_gradients(named, 1)
    before = [p.grad.clone() for _, p in named]
    optimizer.step()
    assert_same([p.grad for _, p in named], before)


# ---- 6. found_inf


@every_class
@pytest.mark.parametrize("guard", ["scaler", "skip_nonfinite"])
def test_a_non_finite_gradient_changes_nothing(case, guard):
    named = parameters(case)
    optimizer = case.make(named, skip_nonfinite=guard == "skip_nonfinite", weight_decay=0.1)
    train(optimizer, named, 1)
    before, state = values(named), states(optimizer)
    set_gradients(named, 5)
    named[1][1].grad[0, 0] = float("inf")
    if guard == "scaler":
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(torch.zeros(()))
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
        assert optimizer.skipped.item() == 1
    assert_same(values(named), before)
    assert_same(states(optimizer), state)


@every_class
def test_scaled_gradients_under_a_scaler_train_as_plain_ones(case):
    plain, scaled = parameters(case), parameters(case)
    first, second = case.make(plain), case.make(scaled)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(3):
        for named, optimizer in ((plain, first), (scaled, second)):
            optimizer.zero_grad()
            loss = sum((p * p).sum() for _, p in named)
            (scaler.scale(loss) if optimizer is second else loss).backward()
        first.step()
        scaler.step(second)
        scaler.update()
    assert_same(values(plain), values(scaled))


@every_class
def test_a_scaler_leaves_gradients_of_float16_weights_to_the_step(case):
    plain, scaled = parameters(case, dtype=torch.float16), parameters(case, dtype=torch.float16)
    first, second = case.make(plain, master_weights=True), case.make(scaled, master_weights=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    scaler.scale(torch.zeros(()))
    for step in range(2):
        set_gradients(plain, step)
        for (_, p), (_, q) in zip(plain, scaled, strict=True):
            q.grad = p.grad * 64
        first.step()
        scaler.step(second)
        scaler.update()
    assert_same(values(plain), values(scaled))
    assert not case.make(parameters(case))._step_supports_amp_scaling  # else Lightning does not clip under mixed precision


# ---- 7. state_dict


@every_class
@pytest.mark.parametrize("named_parameters", [True, False])
def test_a_loaded_optimizer_continues_bit_for_bit(case, named_parameters):
    def pick(named):
        return named if named_parameters else [p for _, p in named]

    named = parameters(case)
    optimizer = case.make(pick(named), weight_decay=0.1)
    train(optimizer, named, 3)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    resumed = parameters(case)
    for (_, p), (_, q) in zip(named, resumed, strict=True):
        q.data.copy_(p.data)
    other = case.make(pick(resumed), lr=7.0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other.param_groups[0]["lr"] == case.lr
    train(optimizer, named, 3, 200)
    train(other, resumed, 3, 200)
    assert_same(values(named), values(resumed))
    assert_same(states(optimizer), states(other))


@every_class
def test_state_is_matched_by_name_in_any_order(case):
    named = parameters(case)
    optimizer = case.make(named)
    train(optimizer, named, 2)
    reordered = list(reversed(parameters(case)))
    other = case.make(reordered)
    other.load_state_dict(optimizer.state_dict())
    by_name = dict(reordered)
    for name, p in named:
        assert_same(dict(optimizer.state[p]), dict(other.state[by_name[name]]))


def contents(value):
    """A saved state as plain lists, in which the order of keys counts."""
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), value.tolist()]
    if isinstance(value, dict):
        return [[key, contents(item)] for key, item in value.items()]
    return [contents(item) for item in value] if isinstance(value, (list, tuple)) else value


@torch_too
def test_state_dict_is_the_same_for_the_same_run(case):
    saved = []
    for _ in range(2):
        named = parameters(case)
        optimizer = case.make([{"params": named[:1]}, {"params": named[1:]}])
        train(optimizer, named, 2)
        saved += [optimizer.state_dict(), optimizer.state_dict()]
    assert all(contents(one) == contents(saved[0]) for one in saved[1:])
    assert [i for group in saved[0]["param_groups"] for i in group["params"]] == list(range(len(named)))
    assert set(saved[0]["state"]) <= set(range(len(named)))


@torch_too
def test_state_dict_refers_to_the_state_and_loading_leaves_what_was_given(case):
    named = parameters(case)
    optimizer = case.make(named)
    train(optimizer, named, 2)
    saved = optimizer.state_dict()
    for i, (_, p) in enumerate(named):
        assert all(value is optimizer.state[p][key] for key, value in saved["state"].get(i, {}).items())
    given = copy.deepcopy(saved)
    kept = contents(given)
    case.make(parameters(case)).load_state_dict(given)
    assert contents(given) == kept


@torch_too
@pytest.mark.parametrize("named_after", [True, False])
@pytest.mark.parametrize("named_before", [True, False])
def test_state_loads_with_and_without_names(case, named_before, named_after):
    named, other = parameters(case), parameters(case)
    optimizer = case.make(named if named_before else [p for _, p in named])
    train(optimizer, named, 2)
    twin = case.make(other if named_after else [p for _, p in other])
    twin.load_state_dict(optimizer.state_dict())
    assert_same(states(twin), states(optimizer))
    assert ("param_names" in twin.param_groups[0]) == named_after or not case.ours


@torch_too
def test_groups_that_do_not_match_are_refused(case):
    named = parameters(case)
    saved = case.make(named).state_dict()
    for params in (named[1:], [p for _, p in named[1:]], [{"params": [p]} for _, p in named]):
        optimizer = case.make(params)
        before = contents(optimizer.state_dict())
        with pytest.raises(ValueError):
            optimizer.load_state_dict(saved)
        assert contents(optimizer.state_dict()) == before


@torch_too
def test_state_of_another_floating_type_is_cast(case):
    named = parameters(case)
    optimizer = case.make(named)
    train(optimizer, named, 2)
    saved = copy.deepcopy(optimizer.state_dict())
    for state in saved["state"].values():
        for key, value in state.items():
            state[key] = value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
    other = case.make(parameters(case))
    other.load_state_dict(saved)
    for one, two in zip(states(other), states(optimizer), strict=True):
        assert_same({key: value.to(two[key].dtype) for key, value in one.items()}, two)
        assert not case.ours or all(value.dtype == two[key].dtype for key, value in one.items())


@torch_too
def test_a_step_that_is_a_plain_number_loads(case):
    named = parameters(case)
    optimizer = case.make(named)
    train(optimizer, named, 2)
    saved = copy.deepcopy(optimizer.state_dict())
    for state in saved["state"].values():
        if "step" in state:
            state["step"] = int(state["step"])
    other = case.make(parameters(case))
    other.load_state_dict(saved)
    assert_same(states(other), states(optimizer))


@every_class
def test_options_that_a_checkpoint_lacks_take_their_defaults(case):
    named = parameters(case)
    optimizer = case.make(named)
    train(optimizer, named, 2)
    saved = optimizer.state_dict()
    for group in saved["param_groups"]:
        del group["skip_nonfinite"], group["maximize"]
    other = case.make(parameters(case), maximize=True, skip_nonfinite=True)
    with pytest.warns(UserWarning, match="maximize=False in place of True, skip_nonfinite=False in place of True"):
        other.load_state_dict(saved)
    assert other.param_groups[0]["maximize"] is False and other.param_groups[0]["skip_nonfinite"] is False
    assert_same(states(other), states(optimizer))


@every_class
def test_a_checkpoint_that_changes_what_state_is_kept_says_so_once(case):
    saved = case.make(parameters(case, dtype=torch.bfloat16)).state_dict()
    momenta = case.name not in ("SSD", "Shampoo")
    other = case.make(parameters(case, dtype=torch.bfloat16), master_weights=True, **({"state_dtype": "bfloat16"} if momenta else {}))
    text = "load_state_dict: options follow the checkpoint: master_weights=False in place of True"
    text += ", state_dtype='auto' in place of 'bfloat16'" if momenta else ""
    with pytest.warns(UserWarning) as warned:
        other.load_state_dict(saved)
    assert [str(warning.message) for warning in warned] == [text]
    assert other.param_groups[0]["master_weights"] is False and other.param_groups[0]["state_dtype"] == "auto"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        case.make(parameters(case, dtype=torch.bfloat16), lr=3.0).load_state_dict(saved)


@torch_too
def test_what_others_keep_in_the_state_is_saved_and_loaded(case):
    """As wrappers do that average weights or remember them (Lookahead, SAM)."""
    named, other = parameters(case), parameters(case)
    optimizer, loaded = case.make(named), case.make(other)
    train(optimizer, named, 1)
    weight = named[0][1]
    optimizer.state[weight] |= {"slow": weight.detach().clone(), "count": 3}
    train(optimizer, named, 1)
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    found = loaded.state[other[0][1]]
    assert_same(found["slow"], optimizer.state[weight]["slow"])
    assert found["count"] == 3
    assert found.keys() == optimizer.state[weight].keys()


def test_weights_on_the_meta_device_are_refused_by_name():
    with torch.device("meta"):
        model = torch.nn.Linear(3, 2)
    text = r"'weight' is on the meta device, which holds no values; create the optimizer after the model has its weights"
    with pytest.raises(ValueError, match=text):
        prism_optim.Prism([("weight", model.weight)])


def test_torch_cannot_swap_weights_that_an_optimizer_of_ours_holds():
    model = torch.nn.Linear(3, 2)
    optimizer = prism_optim.AdamW(model.parameters())
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with pytest.raises(RuntimeError, match="Couldn't swap Linear.weight"):
            model.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert optimizer.param_groups[0]["params"][0] is model.weight


def test_a_checkpoint_that_changes_the_method_says_so():
    """Of options that were given; numbers, which schedules change, follow the checkpoint in silence."""
    weight = torch.nn.Parameter(torch.ones(3, 2))
    saved = prism_optim.Prism([("w", weight)], gamma=0.5, split=(1, 2), coefficients="minimax9").state_dict()
    given = {"covariance": "ema", "side": "right", "nesterov": False, "lr": 0.3, "coefficients": [[3.0, -4.0, 2.0]], "split": (2, 1)}
    changes = [
        "coefficients='minimax9' in place of [[3.0,-4.0,2.0]]", "covariance='instant' in place of 'ema'", "nesterov=True in place of False",
        "side='short' in place of 'right'", "split=[1,2] in place of [2,1]",
    ]  # fmt: skip
    with pytest.warns(UserWarning) as warned:
        prism_optim.Prism([("w", weight)], **given).load_state_dict(saved)
    assert [str(warning.message) for warning in warned] == ["load_state_dict: options follow the checkpoint: " + ", ".join(changes)]


@pytest.mark.parametrize("name", ["AdamW", "Adam", "RMSprop", "Adagrad", "Muon"])
def test_state_of_torch_s_class_is_refused_and_changes_nothing(name):
    weights = [torch.nn.Parameter(torch.ones(3, 2)) for _ in range(2)]
    theirs = getattr(torch.optim, name)(weights[:1])
    ours = getattr(prism_optim, {"Adagrad": "AdaGrad"}.get(name, name))(weights[1:])
    weights[0].grad = weights[1].grad = torch.ones(3, 2)
    theirs.step()
    ours.step()
    before = contents(ours.state_dict())
    with pytest.raises(ValueError, match="the state was not saved by an optimizer of prism_optim: its groups name no 'optimizer'"):
        ours.load_state_dict(theirs.state_dict())
    assert contents(ours.state_dict()) == before


@every_class
def test_saved_keys_do_not_depend_on_history(case):
    named = parameters(case)
    optimizer = case.make(named)
    before = {i: set(s) for i, s in optimizer.state_dict()["state"].items()}
    train(optimizer, named, 2)
    assert {i: set(s) for i, s in optimizer.state_dict()["state"].items()} == before


@every_class
def test_state_keeps_its_type_when_16_bit_weights_are_loaded(case):
    named = parameters(case, dtype=torch.bfloat16)
    optimizer = case.make(named)
    train(optimizer, named, 1)
    other = case.make(parameters(case, dtype=torch.bfloat16))
    other.load_state_dict(optimizer.state_dict())
    assert_same(states(other), states(optimizer))


@every_class
def test_state_follows_a_model_that_is_cast(case):
    named = parameters(case)
    optimizer = case.make(named)
    train(optimizer, named, 1)
    for dtype in (torch.bfloat16, torch.float64, torch.float32):
        before = states(optimizer)
        for _, p in named:
            p.data, p.grad = p.data.to(dtype), None
        train(optimizer, named, 1)
        assert all(p.isfinite().all() and p.dtype == dtype for _, p in named)
        assert [set(s) for s in states(optimizer)] == [set(s) for s in before]


def test_state_that_another_library_replaced_is_taken_over():
    named, other = parameters(CASES[0]), parameters(CASES[0])
    optimizer, untouched = CASES[0].make(named), CASES[0].make(other)
    train(optimizer, named, 2)
    train(untouched, other, 2)
    for p in optimizer.state:
        optimizer.state[p] = {key: value.clone() for key, value in optimizer.state[p].items()}
    train(optimizer, named, 1)
    train(untouched, other, 1)
    assert_same(values(named), values(other))


# ---- 8. hooks


@torch_too
def test_hooks_run_in_torch_s_order(case):
    named = parameters(case)
    optimizer = case.make(named)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("step pre"))
    optimizer.register_step_post_hook(lambda *_: calls.append("step post"))
    optimizer.register_state_dict_pre_hook(lambda *_: calls.append("state pre"))
    optimizer.register_state_dict_post_hook(lambda *_: calls.append("state post"))
    optimizer.register_load_state_dict_pre_hook(lambda *_: calls.append("load pre"))
    optimizer.register_load_state_dict_post_hook(lambda *_: calls.append("load post"))
    set_gradients(named, 1)
    assert optimizer.step(lambda: torch.tensor(3.0)).item() == 3.0
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == ["step pre", "step post", "state pre", "state post", "load pre", "load post"]


@torch_too
def test_hooks_may_replace_what_passes_through_and_may_be_removed(case):
    named, other = parameters(case), parameters(case)
    optimizer = case.make(named)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("second"))
    first = optimizer.register_step_pre_hook(lambda *_: calls.append("first"))
    closed = optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: ((optimizer, lambda: 5.0), kwargs))
    everywhere = register_optimizer_step_post_hook(lambda *_: calls.append("everywhere"))
    assert optimizer.step() == 5.0
    for handle in (first, closed, everywhere):
        handle.remove()
    assert optimizer.step() is None
    assert calls == ["second", "first", "everywhere", "second"]
    train(optimizer, named, 1)
    optimizer.register_state_dict_post_hook(lambda optimizer, state: state | {"note": 1})
    optimizer.register_load_state_dict_pre_hook(lambda optimizer, state: state["packed"])
    twin = case.make(other)
    twin.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert optimizer.state_dict()["note"] == 1
    kept = copy.deepcopy(optimizer.state_dict())
    train(optimizer, named, 1)
    optimizer.load_state_dict({"packed": kept, "param_groups": []})
    assert_same(states(optimizer), states(twin))


# ---- 9. errors


@every_class
def test_impossible_options_are_refused_by_name(case):
    named = parameters(case)
    for options, text in [
        ({"lr": -1.0}, f"{case.cls.kind}: lr must be 0 or more, got -1"),
        ({"lr": float("nan")}, f"{case.cls.kind}: lr must be 0 or more, got nan"),
        ({"weight_decay": -0.5}, f"{case.cls.kind}: weight_decay must be 0 or more, got -0.5"),
        ({"maximize": 1}, "option 'maximize': expected boolean, got 1"),
        ({"lr": "fast"}, "option 'lr': expected number, got \"fast\""),
    ]:
        with pytest.raises(ValueError, match=text.replace("(", r"\(")):
            case.make(named, **options)
    meant = r"did you mean 'gamma'\?" if case.name == "Prism" else "'gamma' is an option of other optimizers."
    with pytest.raises(ValueError, match=f"{case.cls.kind}: unknown option 'gama' in a parameter group; {meant} The options are lr, "):
        case.make([{"params": named, "gama": 1}])
    with pytest.raises(ValueError, match=f"{case.cls.kind}: unknown option 'ns_steps' in a parameter group; 'ns_steps' is an option of other"):
        case.make([{"params": named, "ns_steps": 5}])
    with pytest.raises(TypeError, match="unexpected keyword argument 'foreach'"):
        case.make(named, foreach=True)


@every_class
def test_parameters_and_gradients_that_do_not_fit_are_refused_by_name(case):
    kind = case.cls.kind
    with pytest.raises(ValueError, match="empty parameter list"):
        case.make([])
    with pytest.raises(ValueError, match="two parameters are named 'a'"):
        case.make([("a", torch.ones(2, 2)), ("a", torch.ones(2, 2))])
    with pytest.raises(RuntimeError, match=f"{kind}: 'z' must hold real floating-point numbers, got ComplexFloat"):
        case.make([("z", torch.ones(2, 2, dtype=torch.complex64))])
    named = parameters(case)
    optimizer = case.make(named)
    before = values(named)
    set_gradients(named, 1)
    named[2][1].grad = named[2][1].grad.to_sparse()
    with pytest.raises(RuntimeError, match=f"{kind}: the gradient of 'layer2' must be dense, got Sparse; make it dense first"):
        optimizer.step()
    assert_same(values(named), before)
    if case.matrices_only:
        with pytest.raises(ValueError, match=f"{kind}: 'bias' must be a matrix, got shape \\[3\\]; route it to adamw"):
            case.make([("bias", torch.ones(3))])


@every_class
def test_state_that_does_not_fit_is_named_and_changes_nothing(case):
    named = parameters(case)
    optimizer = case.make(named)
    train(optimizer, named, 1)
    before, saved = states(optimizer), optimizer.state_dict()
    renamed = copy.deepcopy(saved)
    renamed["param_groups"][0]["param_names"][0] = "other"
    with pytest.raises(ValueError, match="the saved state has no parameter 'layer0'; it has 'other' instead"):
        optimizer.load_state_dict(renamed)
    foreign = copy.deepcopy(saved)
    del foreign["param_groups"][0]["optimizer"]
    with pytest.raises(ValueError, match="not saved by an optimizer of prism_optim"):
        optimizer.load_state_dict(foreign)
    for key in saved["state"].get(2, {}):
        for change, text in [(lambda t: None, "has no"), (lambda t: t[None], "must be Float"), (lambda t: "text", "has no")]:
            wrong = copy.deepcopy(saved)
            changed = change(wrong["state"][2].pop(key))
            if changed is not None:
                wrong["state"][2][key] = changed
            with pytest.raises(ValueError, match=f"(?s)(?=.*'layer2')(?=.*'{key}').*{text}"):
                optimizer.load_state_dict(wrong)
    assert_same(states(optimizer), before)


# ---- 10. deepcopy, pickle, repr


@every_class
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))], ids=["deepcopy", "pickle"])
def test_a_copy_continues_alike_and_apart(case, duplicate):
    named = parameters(case)
    optimizer = case.make(named, skip_nonfinite=True)
    train(optimizer, named, 2)
    twin = duplicate(optimizer)
    twins = list(zip([name for name, _ in named], twin.param_groups[0]["params"], strict=True))
    before = values(named)
    train(twin, twins, 2)
    assert_same(values(named), before)
    train(optimizer, named, 2)
    assert_same(values(named), values(twins))
    assert_same(states(optimizer), states(twin))


def test_a_pickle_of_an_earlier_version_continues():
    """Such a pickle has groups and state, and no engine."""
    named = [("a", torch.nn.Parameter(torch.ones(6, 4)))]
    optimizer = prism_optim.Prism(named, lr=0.1)
    train(optimizer, named, 2)
    twin = prism_optim.Prism.__new__(prism_optim.Prism)
    twin.__setstate__(copy.deepcopy({key: value for key, value in optimizer.__getstate__().items() if key != "_engine"}))
    twins = [("a", twin.param_groups[0]["params"][0])]
    train(twin, twins, 1)
    train(optimizer, named, 1)
    assert_same(values(named), values(twins))


@torch_too
def test_a_model_and_its_optimizer_are_copied_together(case):
    named = parameters(case)
    optimizer = case.make(named)
    train(optimizer, named, 2)
    pairs, twin = copy.deepcopy((named, optimizer))
    assert all(p is q for (_, p), q in zip(pairs, twin.param_groups[0]["params"], strict=True))
    train(twin, pairs, 1)
    train(optimizer, named, 1)
    assert_same(values(pairs), values(named))
    assert not any(p is q for (_, p), (_, q) in zip(pairs, named, strict=True))


@torch_too
def test_repr_shows_class_and_options(case):
    text = repr(case.make(parameters(case)))
    assert text.startswith(f"{case.name} (\nParameter Group 0\n") and f"    lr: {case.lr}\n" in text


@every_class
def test_a_compiled_step_is_the_same_step(case):
    named, other = parameters(case), parameters(case)
    train(case.make(named), named, 2)
    optimizer = case.make(other)
    step = torch.compile(optimizer.step)
    for i in range(2):
        set_gradients(other, 100 + i)
        step()
    assert_same(values(named), values(other))


@some_classes
def test_a_whole_graph_of_the_step_is_refused_with_the_way_out(case):
    named = parameters(case)
    optimizer = case.make(named)
    set_gradients(named, 1)
    torch.compiler.reset()
    with pytest.raises(RuntimeError, match="prism_optim: the step is compiled already; compile without fullgraph=True, or leave optimizer.step"):
        torch.compile(optimizer.step, fullgraph=True)()
    assert_same(values(named), values(parameters(case)))
