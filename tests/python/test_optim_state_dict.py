"""The contract of torch.optim: saving, loading, copies and pickles."""

import copy
import io
import pickle
import warnings

import prism_optim
import pytest
import torch
from optim_cases import CASES, assert_same, every_class, parameters, states, torch_too, train, values

# ---- state_dict


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


# ---- deepcopy, pickle, repr


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
