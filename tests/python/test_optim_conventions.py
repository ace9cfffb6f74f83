"""What programs written for torch.optim expect of any optimizer: defaults, groups with keys of their own, learning rates as tensors."""

import prism_optim
import pytest
import torch
from optim_cases import CASES, assert_same, every_class, parameters, states, train, values
from torch import nn


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3))


def test_the_defaults_of_mixed_hold_its_learning_rate():
    assert prism_optim.Mixed(model(), lr=0.3).defaults["lr"] == 0.3
    groups = prism_optim.param_groups(model(), lr=0.2)
    assert prism_optim.Mixed(groups).defaults["lr"] == 0.2
    assert "gamma" not in prism_optim.Mixed(model()).param_groups[1]


@pytest.mark.parametrize("name", ["linear", "cosine", "polynomial", "cosine_with_min_lr", "warmup_stable_decay", "inverse_sqrt"])
def test_schedulers_of_transformers_move_both_groups(name):
    transformers = pytest.importorskip("transformers")
    optimizer = prism_optim.Mixed(model(), lr=0.02, aux_lr=0.005)
    more = {"cosine_with_min_lr": {"min_lr": 1e-4}, "warmup_stable_decay": {"num_decay_steps": 4}}.get(name, {})
    scheduler = transformers.get_scheduler(name, optimizer, num_warmup_steps=2, num_training_steps=10, scheduler_specific_kwargs=more)
    for _ in range(8):
        optimizer.step()
        scheduler.step()
    prism, adamw = (group["lr"] for group in optimizer.param_groups)
    assert 0 < adamw < 0.005 and prism == pytest.approx(4 * adamw)


@every_class
def test_options_that_a_checkpoint_lacks_take_their_defaults(case):
    named = parameters(case)
    optimizer = case.make(named)
    train(optimizer, named, 2)
    saved = optimizer.state_dict()
    for group in saved["param_groups"]:
        del group["skip_nonfinite"], group["maximize"]
    other = case.make(parameters(case), maximize=True, skip_nonfinite=True)
    other.load_state_dict(saved)
    assert other.param_groups[0]["maximize"] is False and other.param_groups[0]["skip_nonfinite"] is False
    assert_same(states(other), states(optimizer))


@every_class
def test_groups_carry_keys_of_their_own(case):
    named = parameters(case)
    optimizer = case.make([{"params": named[:1], "lr_scale": 0.5, "name": "first", "max_lr": 1.0}, {"params": named[1:]}])
    train(optimizer, named, 1)
    other = case.make([{"params": parameters(case)[:1]}, {"params": parameters(case)[1:]}])
    other.load_state_dict(optimizer.state_dict())
    for one in (optimizer, other):
        assert (one.param_groups[0]["lr_scale"], one.param_groups[0]["name"]) == (0.5, "first")
        assert "lr_scale" not in one.param_groups[1]
    plain = parameters(case)
    train(case.make([{"params": plain[:1]}, {"params": plain[1:]}]), plain, 1)
    assert_same(values(named), values(plain))


def test_misspelt_options_are_refused_with_the_nearest_name():
    weight = nn.Parameter(torch.ones(2, 2))
    for key, near in {"weight_deccay": "weight_decay", "momentun": "momentum", "nesterv": "nesterov", "gammas": "gamma"}.items():
        with pytest.raises(ValueError, match=rf"prism: unknown option '{key}' in a parameter group; did you mean '{near}'\?"):
            prism_optim.Prism([{"params": [weight], key: 1}])
    with pytest.raises(ValueError, match="prism: unknown option 'betas' in a parameter group; 'betas' is an option of other optimizers"):
        prism_optim.Prism([{"params": [weight], "betas": (0.9, 0.9)}])


@every_class
def test_a_learning_rate_given_as_a_tensor_stays_that_tensor(case):
    lr = torch.tensor(case.lr)
    named = parameters(case)
    optimizer = case.make([{"params": named[:1]}, {"params": named[1:]}], lr=lr)
    assert all(group["lr"] is lr for group in optimizer.param_groups)
    before = values(named)
    lr.zero_()
    train(optimizer, named, 2)
    assert_same(values(named), before)


def test_mixed_keeps_its_learning_rates_as_tensors():
    lr, aux_lr = torch.tensor(0.02), torch.tensor(0.005)
    optimizer = prism_optim.Mixed(model(), lr=lr, aux_lr=aux_lr)
    assert optimizer.param_groups[0]["lr"] is lr and optimizer.param_groups[1]["lr"] is aux_lr


@pytest.mark.parametrize("case", [c for c in CASES if c.matrices_only], ids=str)
def test_vectors_are_a_value_error(case):
    with pytest.raises(ValueError, match=f"{case.cls.kind}: 'parameter.0' must be a matrix, got shape \\[3\\]; route it to adamw"):
        case.make([torch.ones(3)])


@every_class
def test_duplicate_parameters_warn_and_are_trained_once(case):
    named, plain = parameters(case), parameters(case)
    twice = [p for _, p in named] + [named[0][1]]
    with pytest.warns(UserWarning, match="optimizer contains a parameter group with duplicate parameters"):
        optimizer = case.make(twice)
    train(optimizer, named, 2)
    train(case.make([p for _, p in plain]), plain, 2)
    assert_same(values(named), values(plain))
