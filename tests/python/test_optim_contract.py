"""Every class of prism_optim against the nine categories of PyTorch's own optimizer suite."""

import copy
import inspect
import io
import pickle

import prism_optim
import pytest
import torch
from optim_cases import CASES, assert_same, every_class, parameters, set_gradients, states, train, values
from torch.optim import lr_scheduler

# ---- 1. direction


@every_class
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


@every_class
def test_maximize_climbs_where_the_negated_gradient_descends(case):
    up, down = parameters(case), parameters(case)
    climbing, descending = case.make(up, maximize=True), case.make(down)
    for step in range(3):
        set_gradients(up, step)
        for (_, p), (_, q) in zip(up, down, strict=True):
            q.grad = -p.grad
        climbing.step()
        descending.step()
    assert_same(values(up), values(down))


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


@every_class
def test_a_tensor_learning_rate_is_the_same_number(case):
    plain, tensor = parameters(case), parameters(case)
    train(case.make(plain), plain, 3)
    train(case.make(tensor, lr=torch.tensor(case.lr, dtype=torch.float64)), tensor, 3)
    assert_same(values(plain), values(tensor))


@every_class
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


@every_class
def test_groups_override_options_and_may_come_later(case):
    named = parameters(case)
    optimizer = case.make([{"params": named[:1], "lr": 0.5}, {"params": named[1:2]}])
    optimizer.add_param_group({"params": named[2:], "weight_decay": 0.25})
    assert [g["lr"] for g in optimizer.param_groups] == [0.5, case.lr, case.lr]
    assert optimizer.param_groups[2]["weight_decay"] == 0.25
    before = values(named)
    train(optimizer, named, 2)  # SOAP's first step only makes its basis
    assert all((a != b).any() for a, b in zip(before, values(named), strict=True))


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


SCHEDULERS = [name for name in lr_scheduler.__all__ if name not in ("LRScheduler", "_LRScheduler")]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("case", [CASES[0], CASES[6]], ids=str)
def test_the_learning_rate_a_scheduler_sets_is_the_one_used(case, scheduler):
    named, other = parameters(case), parameters(case)
    optimizer = case.make(named)
    made = scheduler_of(scheduler, optimizer)
    for step in range(4):
        set_gradients(named, step)
        replay = case.make(other, **{k: v for k, v in optimizer.param_groups[0].items() if k in ("lr", "momentum", "betas")})
        replay.load_state_dict({"state": optimizer.state_dict()["state"], "param_groups": replay.state_dict()["param_groups"]})
        for (_, p), (_, q) in zip(named, other, strict=True):
            q.data.copy_(p.data)
            q.grad = p.grad.clone()
        optimizer.step()
        replay.step()
        assert_same(values(named), values(other))
        made.step(1.0) if scheduler == "ReduceLROnPlateau" else made.step()


# ---- 4. degenerate gradients


@every_class
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


# ---- 5. found_inf


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


# ---- 6. state_dict


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


# ---- 7. hooks


@every_class
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


# ---- 8. errors


@every_class
def test_impossible_options_are_refused_by_name(case):
    named = parameters(case)
    for options, text in [
        ({"lr": -1.0}, f"{case.cls.kind}: lr must be 0 or more, got -1"),
        ({"lr": float("nan")}, f"{case.cls.kind}: lr must be a finite number, got nan"),
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
    with pytest.raises(RuntimeError, match=f"{kind}: the gradient of 'layer2' must be dense, got torch.sparse_coo; make it dense first"):
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
        for change, text in [(lambda t: None, "has no"), (lambda t: t[None], "must be torch.float"), (lambda t: t.half(), "must be torch.float")]:
            wrong = copy.deepcopy(saved)
            changed = change(wrong["state"][2].pop(key))
            if changed is not None:
                wrong["state"][2][key] = changed
            with pytest.raises(ValueError, match=f"(?s)(?=.*'layer2')(?=.*'{key}').*{text}"):
                optimizer.load_state_dict(wrong)
    assert_same(states(optimizer), before)


# ---- 9. deepcopy, pickle, repr


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


@every_class
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
