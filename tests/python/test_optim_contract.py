"""The contract of torch.optim, for every class of prism_optim: steps, gradients and hooks. What torch promises is tested on torch's own classes
beside them; test_optim_groups.py, test_optim_schedulers.py and test_optim_state_dict.py are the rest of the contract."""

import copy

import pytest
import torch
from optim_cases import assert_same, every_class, parameters, set_gradients, some_classes, states, torch_too, train, values
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook

# ---- direction


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


# ---- equivalence of implementations


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


# ---- degenerate gradients


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


# ---- found_inf


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


# ---- hooks


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


# ---- torch.compile


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
