"""The contract of torch.optim: learning-rate schedulers."""

import copy

import prism_optim
import pytest
import torch
from optim_cases import CASES, assert_same, parameters, set_gradients, some_classes, train, values
from torch.optim import lr_scheduler


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
