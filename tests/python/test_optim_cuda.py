"""prism_optim on a GPU: the state follows the model, a step waits for nothing, and the numbers are the CPU's."""

import prism_optim
import pytest
import torch
from optim_cases import every_class, parameters, states, train, values

pytestmark = pytest.mark.gpu


def to_cuda(named):
    for _, p in named:
        p.data, p.grad = p.data.cuda(), None if p.grad is None else p.grad.cuda()


def train_on_cuda(optimizer, named, steps):
    for step in range(steps):
        generator = torch.Generator().manual_seed(100 + step)
        for _, p in named:
            p.grad = torch.randn(p.shape, generator=generator).cuda()
        optimizer.step()


def starts(case):
    """SOAP's basis is arbitrary where the first gradient has no direction; a square one has them all."""
    if case.name != "SOAP":
        return parameters(case)
    return [("square", torch.nn.Parameter(torch.randn(6, 6, generator=torch.Generator().manual_seed(0))))]


@every_class
def test_a_model_moved_to_the_gpu_trains_as_on_the_cpu(case):
    here, there = starts(case), starts(case)
    on_cpu, moved = case.make(here), case.make(there)
    to_cuda(there)
    train(on_cpu, here, 3)
    train_on_cuda(moved, there, 3)
    assert all(value.is_cuda for state in states(moved) for value in state.values())
    # At the first steps D is parallel to T, so the Gram of the longer side is singular, and rounding to fp16 shows.
    atol = 1e-2 if case.options.get("side") == "long" else 1e-3
    torch.testing.assert_close([v.cpu() for v in values(there)], values(here), rtol=1e-2, atol=atol)


@pytest.mark.parametrize("name", ["Prism", "Muon", "TikhonovMuon", "AdamW", "Adam", "AdaGrad", "RMSprop"])
def test_a_step_makes_no_host_synchronization(name):
    params = [torch.nn.Parameter(torch.randn(8, 6, device="cuda")) for _ in range(3)]
    for p in params:
        p.grad = torch.randn_like(p)
    optimizer = getattr(prism_optim, name)(params, lr=torch.tensor(0.1, device="cuda"), skip_nonfinite=True)
    optimizer.found_inf, optimizer.grad_scale = torch.zeros(1, device="cuda"), torch.ones(1, device="cuda")
    optimizer.step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@every_class
def test_found_inf_on_the_device_changes_nothing(case):
    named = parameters(case)
    to_cuda(named)
    optimizer = case.make(named, weight_decay=0.1)
    train_on_cuda(optimizer, named, 1)
    before, state = values(named), states(optimizer)
    for _, p in named:
        p.grad.fill_(float("inf"))
    optimizer.found_inf = torch.ones(1, device="cuda")
    optimizer.step()
    torch.testing.assert_close(values(named), before, rtol=0, atol=0)
    torch.testing.assert_close(states(optimizer), state, rtol=0, atol=0)
