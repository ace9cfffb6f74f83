"""accelerate: prepare, accumulate, clip, and save_state with load_state."""

import accelerate
import prism_optim
import pytest
import torch
from optim_cases import assert_same, states
from tiny_models import regression, tiny_net
from torch.utils.data import DataLoader, TensorDataset


def loss_of(model):
    x, y = regression()
    return (model(x) - y).square().mean().item()


def run(folder=None, *, resume=None, steps=8, precision="no", seed=0):
    accelerate.state.AcceleratorState._reset_state(True)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2, mixed_precision=precision)
    accelerate.utils.set_seed(seed)
    model = tiny_net(seed)
    optimizer = prism_optim.Mixed(model, lr=0.02, aux_lr=0.005)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    loader = DataLoader(TensorDataset(*regression()), batch_size=8)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    if resume:
        accelerator.load_state(resume)
    losses = []
    for step, (x, y) in enumerate(loader):
        if step >= steps or (resume and step < 4):
            continue
        with accelerator.accumulate(model):
            loss = (model(x) - y).square().mean()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        losses.append(loss.item())
        if folder and step == 3:
            accelerator.save_state(folder)
    return accelerator, model, optimizer, losses


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_a_prepared_optimizer_trains(precision):
    accelerator, model, optimizer, _ = run(precision=precision)
    assert loss_of(model) < 0.95 * loss_of(tiny_net())
    assert [group["optimizer"] for group in optimizer.param_groups] == ["prism", "adamw"]
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.02 * 0.9**4)
    assert not optimizer.step_was_skipped
    assert_same(dict(accelerator.unwrap_model(model).state_dict()), dict(model.state_dict()))


def test_a_saved_state_continues_bit_for_bit(tmp_path):
    _, through, first, losses = run(tmp_path / "state")
    _, resumed, second, rest = run(resume=tmp_path / "state", seed=3)
    assert rest == losses[4:]
    assert_same(dict(resumed.state_dict()), dict(through.state_dict()))
    assert_same(states(second.optimizer), states(first.optimizer))
