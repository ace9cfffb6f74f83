"""The work of Mixed beside its optimizers: routing of groups, tied rates, momentum under one name, and a table that follows."""

import copy
import pickle
import warnings

import prism_optim
import pytest
import torch
import torch.distributed.checkpoint as dcp
from optim_cases import assert_same, set_gradients, states, values
from torch import nn
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict
from torch.optim import lr_scheduler


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 3))


def train(optimizer, model, steps, first_seed=0):
    for step in range(steps):
        set_gradients(list(model.named_parameters()), first_seed + step)
        optimizer.step()


def weights(model):
    return values(list(model.named_parameters()))


def where(optimizer):
    return {name: group["optimizer"] for group in optimizer.param_groups for name in group["param_names"]}


def test_the_defaults_of_mixed_hold_its_learning_rate():
    assert prism_optim.Mixed(net(), lr=0.3).defaults["lr"] == 0.3
    assert prism_optim.Mixed(prism_optim.param_groups(net(), lr=0.2)).defaults["lr"] == 0.2
    recommended = {"lr": 0.005, "gamma": 0.17, "side": "whitened", "root_every": 16, "covariance": "ema", "coefficients": "minimax9", "normalize": "rows"}
    assert recommended.items() <= prism_optim.Mixed(net()).param_groups[0].items()
    assert prism_optim.Mixed(net()).param_groups[1]["lr"] == 0.02
    published = {"lr": 0.02, "gamma": 1.0, "side": "short", "covariance": "instant", "coefficients": "jordan", "normalize": "none"}
    assert published.items() <= prism_optim.Prism([nn.Parameter(torch.ones(3, 2))]).param_groups[0].items()
    assert "gamma" not in prism_optim.Mixed(net()).param_groups[1]


def test_mixed_keeps_its_learning_rates_as_tensors():
    lr, aux_lr = torch.tensor(0.02), torch.tensor(0.005)
    optimizer = prism_optim.Mixed(net(), lr=lr, aux_lr=aux_lr)
    assert optimizer.param_groups[0]["lr"] is lr and optimizer.param_groups[1]["lr"] is aux_lr


# ---- groups that name no optimizer


@pytest.mark.parametrize("given", [lambda model: model, nn.Module.named_parameters], ids=["model", "named_parameters"])
def test_layers_unfrozen_later_are_routed_by_their_names_in_the_model(given):
    model, whole = net(), net()
    model[0].requires_grad_(False)
    model[3].requires_grad_(False)
    optimizer = prism_optim.Mixed(given(model), lr=0.1, aux_lr=0.02, gamma=2.0, aux_betas=(0.8, 0.9))
    assert set(where(optimizer)) == {"1.weight", "1.bias", "2.weight", "2.bias", "4.weight", "4.bias"}
    model.requires_grad_(True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.add_param_group({"params": [*model[0].parameters(), *model[3].parameters()], "lr": 0.01})
    assert where(optimizer) == where(prism_optim.Mixed(whole))
    added = optimizer.param_groups[2:]
    assert [(group["optimizer"], group["lr"]) for group in added] == [("prism", 0.01), ("adamw", pytest.approx(0.002))]
    assert added[0]["gamma"] == 2.0 and added[1]["betas"] == (0.8, 0.9)
    assert sorted(optimizer.routing().splitlines()) == sorted(prism_optim.routing(whole).splitlines())
    before = weights(model)
    train(optimizer, model, 1)
    assert all((a != b).any() for a, b in zip(before, weights(model), strict=True))


def test_parameters_without_names_are_routed_by_shape_with_a_note():
    model = net()
    note = "Mixed: 9 parameters have no names, so they are routed by shape: matrices, including embeddings and output heads, go to prism, the rest to"
    decayed = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() < 2]
    with pytest.warns(UserWarning, match=note):
        optimizer = prism_optim.Mixed([{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=0.1, aux_lr=0.02)
    assert [(g["optimizer"], g["lr"], g["weight_decay"], len(g["params"])) for g in optimizer.param_groups] == [
        ("prism", 0.1, 0.1, 4), ("adamw", 0.02, 0.0, 5)
    ]  # fmt: skip
    assert "group 0" in optimizer.routing() and optimizer.routing().endswith("prism: 190 elements in 4 parameters\n")
    train(optimizer, model, 1)
    named = prism_optim.Mixed([("embed.weight", model[0].weight)])
    with pytest.warns(UserWarning, match="Mixed: 1 parameters have no names"):
        named.add_param_group({"params": [nn.Parameter(torch.ones(2, 2))]})
    assert where(named) == {"embed.weight": "adamw", "parameter.1": "prism"}


def test_groups_of_named_parameters_are_routed_by_name():
    model = net()
    named = list(model.named_parameters())
    optimizer = prism_optim.Mixed([{"params": named[:2], "name": "first"}, {"params": named[2:], "lr": 0.5, "aux_lr": 0.25}], lr=0.1, aux_lr=0.02)
    assert where(optimizer)["0.weight"] == "prism"  # a name says nothing of an embedding in a Sequential
    assert [(g["optimizer"], g["lr"], g.get("name")) for g in optimizer.param_groups] == [
        ("prism", 0.1, "first"), ("prism", 0.5, None), ("adamw", 0.25, None)
    ]  # fmt: skip


def test_options_of_a_routed_group_go_to_the_optimizers_that_have_them():
    model = net()
    model[3].requires_grad_(False)
    optimizer = prism_optim.Mixed(model, weight_decay=0.3)
    model[3].requires_grad_(True)
    own = {"weight_decay": 0.1, "aux_weight_decay": 0.2, "gamma": 3.0, "betas": (0.5, 0.6), "lr_scale": 0.5}
    optimizer.add_param_group({"params": list(model[3].parameters()), **own})
    prism, adamw = optimizer.param_groups[-2:]
    assert (prism["weight_decay"], prism["gamma"], prism["lr_scale"]) == (0.1, 3.0, 0.5)
    assert (adamw["weight_decay"], adamw["betas"], adamw["lr_scale"]) == (0.2, (0.5, 0.6), 0.5)
    assert "betas" not in prism and "gamma" not in adamw and "aux_weight_decay" not in adamw


def test_groups_that_cannot_be_routed_change_nothing():
    model = net()
    optimizer = prism_optim.Mixed(model, lr=0.0, aux_lr=0.1)
    with pytest.raises(ValueError, match="some parameters appear in more than one parameter group"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2, 2)), model[1].weight]})
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="a group with 'lr' needs 'aux_lr' too, because Mixed was created with a rate of 0"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))], "lr": 0.1})
    assert len(optimizer.param_groups) == 2
    carrying = prism_optim.Mixed(prism_optim.param_groups(model))
    with pytest.raises(ValueError, match="a group of Mixed must name its optimizer"):
        carrying.add_param_group({"params": [nn.Parameter(torch.ones(2, 2))]})
    with pytest.raises(TypeError, match="param_group must be a dict, got list"):
        carrying.add_param_group([])


@pytest.mark.parametrize("make", [lambda params: [{"params": params}], None], ids=["constructor", "add_param_group"])
def test_what_is_no_list_of_parameters_is_refused_as_by_torch(make):
    weight = nn.Parameter(torch.ones(2, 2))
    for params, error, text in [
        ({weight}, TypeError, "ordered collections"),
        ([3.0], TypeError, "can only optimize Tensors"),
        ([("a", weight), nn.Parameter(torch.ones(2, 2))], ValueError, "with/without names"),
        ([("a", weight * 2)], ValueError, "can't optimize a non-leaf Tensor"),
    ]:
        with pytest.raises(error, match=text):
            prism_optim.Mixed(make(params)) if make else prism_optim.Mixed(net()).add_param_group({"params": params})


def test_state_saved_before_momentum_had_two_names_loads():
    optimizer, other = prism_optim.Mixed(net()), prism_optim.Mixed(net())
    saved = optimizer.state_dict()
    del saved["param_groups"][1]["momentum"]
    other.load_state_dict(saved)
    assert other.param_groups[1]["momentum"] == 0.9


def test_the_message_about_capturable_names_every_setting():
    assert prism_optim.Mixed(net(), capturable=True).param_groups[0]["capturable"]
    for options in ({"gamma": 0}, {"covariance": "sketch"}, {"side": "both"}, {"solver": "exact"}):
        with pytest.raises(ValueError, match=r"prism: capturable is for .* prism \(covariance instant, or ema with gamma > 0\), .* solver gram, .* one side"):
            prism_optim.Mixed(net(), capturable=True, **options)


FORMER = {"lr": 0.02, "gamma": 1.0, "side": "short", "covariance": "instant", "coefficients": "jordan"}


@pytest.mark.parametrize("full", [None, False, True], ids=["plain", "dcp", "dcp full"])
@pytest.mark.parametrize("saved_by", [FORMER, {}], ids=["former", "present"])
def test_state_of_the_former_default_continues_as_it_was(saved_by, full):
    """Saved with the former default of Mixed and loaded with the present one, and the reverse: options and state follow the checkpoint."""
    if full and not saved_by:
        pytest.skip("with full_state_dict DCP loads no fields that the optimizer does not have yet")
    model, other = net(), net(1)
    first, second = prism_optim.Mixed(model, **saved_by), prism_optim.Mixed(other, **({} if saved_by else FORMER))
    train(first, model, 3)
    train(second, other, 1)
    weights_then = copy.deepcopy(model.state_dict())
    if full is None:
        saved = copy.deepcopy(first.state_dict())
        if saved_by:
            saved["param_groups"][0]["side"] = "auto"  # as it was called then
    else:
        options = StateDictOptions(full_state_dict=full)
        saved = copy.deepcopy(get_optimizer_state_dict(model, first, options=options))
    other.load_state_dict(weights_then)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about options that were given here
        second.load_state_dict(saved) if full is None else set_optimizer_state_dict(other, second, saved, options=options)
    train(first, model, 2, first_seed=7)
    train(second, other, 2, first_seed=7)
    assert_same(weights(other), weights(model))
    assert_same(states(second), states(first))
    assert ("covariance" in second.state[other[1].weight]) == (saved_by == {})


def test_a_checkpoint_on_disk_is_read_into_an_optimizer_with_its_options(tmp_path):
    model = net()
    optimizer = prism_optim.Mixed(model, **FORMER)
    train(optimizer, model, 2)
    dcp.save({"model": model.state_dict(), "optimizer": get_optimizer_state_dict(model, optimizer)}, checkpoint_id=tmp_path)
    for options in ({}, FORMER):
        other = net(1)
        loaded = prism_optim.Mixed(other, **options)
        parts = {"model": other.state_dict(), "optimizer": get_optimizer_state_dict(other, loaded)}
        if not options:
            with pytest.raises(CheckpointException, match="Missing key in checkpoint state_dict: optimizer.state.1.weight.step"):
                dcp.load(parts, checkpoint_id=tmp_path)
            continue
        dcp.load(parts, checkpoint_id=tmp_path)
        other.load_state_dict(parts["model"])
        set_optimizer_state_dict(other, loaded, parts["optimizer"])
        train(optimizer, model, 2, first_seed=7)
        train(loaded, other, 2, first_seed=7)
        assert_same(weights(other), weights(model))


def test_the_routing_table_follows_added_groups():
    optimizer = prism_optim.Mixed(prism_optim.param_groups(nn.Linear(4, 8)))
    optimizer.add_param_group({"params": [("late", nn.Parameter(torch.ones(3, 2)))], "optimizer": "muon"})
    assert "late       3 × 2  group 2  muon\n" in optimizer.routing()
    model = nn.Linear(4, 8)
    routed = prism_optim.Mixed(model)
    routed.add_param_group({"params": [("late", nn.Parameter(torch.ones(3, 2)))], "optimizer": "muon"})
    assert "weight     8 × 4  hidden matrix  prism\n" in routed.routing()
    assert "late       3 × 2  group 2        muon\n" in routed.routing()


# ---- tied rates


def loop_that_writes_one_rate(optimizer, model, rates):
    for step, rate in enumerate(rates):
        for group in optimizer.param_groups:
            group["lr"] = rate
        set_gradients(list(model.named_parameters()), step)
        optimizer.step()


def test_tied_rates_keep_their_ratio_when_one_rate_is_written_to_all():
    rates = [0.1, 0.05, 0.02]
    tied, apart, lost = net(), net(), net()
    optimizer = prism_optim.Mixed(tied, lr=0.1, aux_lr=0.025, tie_rates=True)
    assert [(g["lr"], g["lr_ratio"]) for g in optimizer.param_groups] == [(0.1, 1.0), (0.1, 0.25)]
    loop_that_writes_one_rate(optimizer, tied, rates)
    reference = prism_optim.Mixed(apart, lr=0.1, aux_lr=0.025)
    for step, rate in enumerate(rates):
        reference.param_groups[0]["lr"], reference.param_groups[1]["lr"] = rate, rate / 4
        train(reference, apart, 1, step)
    assert_same(weights(tied), weights(apart))
    untied = prism_optim.Mixed(lost, lr=0.1, aux_lr=0.025)
    loop_that_writes_one_rate(untied, lost, rates)
    assert any((a != b).any() for a, b in zip(weights(lost), weights(apart), strict=True))


def test_schedulers_move_tied_rates_as_others():
    tied, apart = net(), net()
    optimizers = [prism_optim.Mixed(tied, lr=0.1, aux_lr=0.025, tie_rates=True), prism_optim.Mixed(apart, lr=0.1, aux_lr=0.025)]
    schedulers = [lr_scheduler.CosineAnnealingLR(optimizer, 4) for optimizer in optimizers]
    for step in range(3):
        for optimizer, model, scheduler in zip(optimizers, (tied, apart), schedulers, strict=True):
            train(optimizer, model, 1, step)
            scheduler.step()
    torch.testing.assert_close(weights(tied), weights(apart))


def test_a_tied_rate_that_is_a_tensor_stays_one_tensor():
    lr = torch.tensor(0.1, dtype=torch.float64)
    model, other = net(), net()
    optimizer = prism_optim.Mixed(model, lr=lr, aux_lr=0.025, tie_rates=True)
    assert all(group["lr"] is lr for group in optimizer.param_groups)
    lr.fill_(0.05)
    train(optimizer, model, 1)
    train(prism_optim.Mixed(other, lr=0.05, aux_lr=0.0125), other, 1)
    torch.testing.assert_close(weights(model), weights(other))


def test_routing_says_that_rates_are_tied():
    model = net()
    line = "tied rates: each group trains at lr times its lr_ratio (prism 1, adamw 0.25)\n"
    assert prism_optim.Mixed(model, lr=0.1, aux_lr=0.025, tie_rates=True).routing() == prism_optim.routing(model) + line
    assert "tied" not in prism_optim.Mixed(model).routing()


@pytest.mark.parametrize("how", ["state_dict", "pickle", "deepcopy"])
def test_tied_rates_are_saved(how):
    model, other = net(), net()
    optimizer = prism_optim.Mixed(model, lr=0.1, aux_lr=0.025, tie_rates=True)
    train(optimizer, model, 1)
    if how == "state_dict":
        twin = prism_optim.Mixed(other, lr=0.3, aux_lr=0.3, tie_rates=True)
        twin.load_state_dict(optimizer.state_dict())
    else:
        twin = copy.deepcopy(optimizer) if how == "deepcopy" else pickle.loads(pickle.dumps(optimizer))
    assert [(g["lr"], g["lr_ratio"]) for g in twin.param_groups] == [(0.1, 1.0), (0.1, 0.25)]
    assert twin.routing() == optimizer.routing()
    assert_same(states(twin), states(optimizer))


def test_tied_and_untied_rates_are_not_mixed_up():
    tied, untied = prism_optim.Mixed(net(), tie_rates=True), prism_optim.Mixed(net())
    for one, other, saved in ((tied, untied, False), (untied, tied, True)):
        with pytest.raises(ValueError, match=f"saved with tie_rates={saved}; create Mixed with tie_rates={saved} to load it"):
            one.load_state_dict(other.state_dict())
    with pytest.raises(ValueError, match="a group has 'lr_ratio', which only tied rates use; give tie_rates=True or leave it out"):
        prism_optim.Mixed(tied.param_groups)
    again = prism_optim.Mixed(tied.param_groups, tie_rates=True)
    assert [group["lr_ratio"] for group in again.param_groups] == [group["lr_ratio"] for group in tied.param_groups]
    with pytest.raises(ValueError, match="tie_rates needs a first rate above 0 to compare the others with, got 0"):
        prism_optim.Mixed(net(), lr=0.0, tie_rates=True)


def test_added_groups_are_tied_too():
    model = net()
    model[3].requires_grad_(False)
    optimizer = prism_optim.Mixed(model, lr=0.1, aux_lr=0.05, tie_rates=True)
    model[3].requires_grad_(True)
    optimizer.add_param_group({"params": list(model[3].parameters()), "lr": 0.01})
    assert [g["lr"] for g in optimizer.param_groups] == [0.1] * 4
    assert [g["lr_ratio"] for g in optimizer.param_groups] == pytest.approx([1.0, 0.5, 0.1, 0.05])


# ---- momentum under one name


@pytest.mark.parametrize("scheduler", [lambda o: lr_scheduler.OneCycleLR(o, [0.1, 0.02], 6), lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 2)])
def test_schedulers_that_cycle_momentum_reach_both_groups(scheduler):
    model, other = net(), net()
    optimizer = prism_optim.Mixed(model, lr=0.1, aux_lr=0.02)
    made = scheduler(optimizer)
    reference = prism_optim.Mixed(other, lr=0.1, aux_lr=0.02)
    for step in range(5):
        prism, adamw = optimizer.param_groups
        reference.param_groups[0] |= {"lr": prism["lr"], "momentum": prism["momentum"]}
        reference.param_groups[1] |= {"lr": adamw["lr"], "betas": (adamw["momentum"], 0.95)}
        train(optimizer, model, 1, step)
        train(reference, other, 1, step)
        assert_same(weights(model), weights(other))
        assert adamw["betas"] == (adamw["momentum"], 0.95)
        made.step()
    assert adamw["momentum"] != 0.9


def test_either_name_of_the_first_beta_may_be_written():
    optimizer = prism_optim.Mixed(net())
    adamw = optimizer.param_groups[1]
    assert adamw["momentum"] == 0.9 and adamw["betas"] == (0.9, 0.95)
    adamw["betas"] = (0.7, 0.8)
    optimizer.step()
    assert adamw["momentum"] == 0.7 and adamw["betas"] == (0.7, 0.8)
    adamw["momentum"] = 0.6
    assert optimizer.state_dict()["param_groups"][1]["betas"] == (0.6, 0.8)
    adamw |= {"momentum": 0.5, "betas": (0.4, 0.8)}
    with pytest.raises(ValueError, match="adamw: 'momentum' is the first of 'betas' in a group of Mixed, but they were set to 0.5 and 0.4"):
        optimizer.step()


def test_groups_of_one_mixed_make_another():
    model = net()
    optimizer = prism_optim.Mixed(model, aux_betas=(0.8, 0.9))
    again = prism_optim.Mixed(optimizer.param_groups)
    assert again.param_groups[1]["betas"] == (0.8, 0.9) and again.defaults["momentum"] == 0.95
    assert "momentum" not in prism_optim.Mixed(prism_optim.param_groups(model, rest="adagrad")).defaults
    late = prism_optim.Mixed(nn.Linear(4, 8))
    late.add_param_group({"params": [("late", nn.Parameter(torch.ones(3)))], "optimizer": "adagrad"})
    assert "momentum" not in late.param_groups[-1]
