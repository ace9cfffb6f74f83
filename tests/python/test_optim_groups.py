"""The contract of torch.optim: parameter groups, options and what is refused."""

import collections
import copy
import inspect
import itertools

import numpy as np
import prism_optim
import pytest
import torch
from optim_cases import CASES, assert_same, every_class, parameters, set_gradients, states, torch_too, train, values

# ---- hyperparameters


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


# ---- changes made by hand to groups and state



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


# ---- errors


@every_class
def test_impossible_options_are_refused_by_name(case):
    named = parameters(case)
    for options, text in [
        ({"lr": -1.0}, f"{case.cls.kind}: lr must be 0 or more, got -1"),
        ({"lr": float("nan")}, f"{case.cls.kind}: lr must be 0 or more, got nan"),
        ({"weight_decay": -0.5}, f"{case.cls.kind}: weight_decay must be 0 or more, got -0.5"),
        ({"maximize": 1}, "option 'maximize': expected boolean, got 1"),
        ({"lr": "fast"}, "option 'lr': expected number, got \"fast\""),
        ({"state_dtype": torch.bfloat16}, "option 'state_dtype': expected .*, got \"torch.bfloat16\""),
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


def test_values_that_json_does_not_have_are_refused_by_name():
    weights = [torch.nn.Parameter(torch.ones(4, 3))]
    for betas in [(float("nan"), 0.9), (torch.tensor([0.9, 0.8]), 0.9), (np.float64("inf"), 0.9)]:
        with pytest.raises(ValueError, match="option 'betas': expected pair, got "):
            prism_optim.AdamW(weights, betas=betas)
    with pytest.raises(ValueError, match="option 'split': expected integers, got "):
        prism_optim.Muon(weights, split={2, 4})
    with pytest.raises(ValueError, match=r"option 'coefficients': expected coefficients, got \[\[\"inf\",-0.5\]\]"):
        prism_optim.Muon(weights, coefficients=[(float("inf"), -0.5)])


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
