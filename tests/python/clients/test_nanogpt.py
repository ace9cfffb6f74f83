"""A loop as nanoGPT's: one rate written into every group, accumulation, clipping, a GradScaler, checkpoints."""

import math

import prism_optim
import pytest
import torch
from optim_cases import assert_same, states
from tiny_models import counting, tiny_gpt

STEPS, WARMUP, PEAK, FLOOR = 60, 4, 0.06, 0.006


def rate_of(step):
    if step < WARMUP:
        return PEAK * (step + 1) / (WARMUP + 1)
    progress = (step - WARMUP) / (STEPS - WARMUP)
    return FLOOR + (PEAK - FLOOR) * (1 + math.cos(math.pi * progress)) / 2


class Run:
    def __init__(self, *, tie_rates=True, accumulate=2, dtype=torch.bfloat16, scale=1024.0, seed=0):
        self.model = tiny_gpt(seed)
        self.optimizer = prism_optim.Mixed(self.model, lr=PEAK, aux_lr=PEAK / 4, weight_decay=0.01, tie_rates=tie_rates)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=8)
        self.accumulate, self.dtype, self.step, self.losses = accumulate, dtype, 0, []

    def train(self, steps):
        for _ in range(steps):
            for group in self.optimizer.param_groups:
                group["lr"] = rate_of(self.step)
            rows = counting(16, self.step)
            for part in rows.chunk(self.accumulate):
                with torch.autocast("cpu", self.dtype, enabled=self.dtype is not None):
                    loss = self.model(part[:, :-1], part[:, 1:]) / self.accumulate
                self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)
            self.losses.append(self.accumulate * loss.item())
            self.step += 1
        return self


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, None], ids=str)
def test_the_loss_falls_at_tied_rates(dtype):
    run = Run(dtype=dtype).train(STEPS)
    assert run.losses[-1] < 0.5 * run.losses[0]
    assert [group["lr_ratio"] for group in run.optimizer.param_groups] == [1.0, 0.25]
    assert {group["lr"] for group in run.optimizer.param_groups} == {rate_of(STEPS - 1)}


def test_one_rate_for_all_is_another_run_unless_rates_are_tied():
    tied, untied = Run().train(3), Run(tie_rates=False).train(3)
    assert (tied.model.wte.weight != untied.model.wte.weight).any()
    by_hand = Run(tie_rates=False)
    adamw = by_hand.optimizer.param_groups[1]
    by_hand.optimizer.register_step_pre_hook(lambda *_: adamw.update(lr=adamw["lr"] / 4))
    assert_same(dict(by_hand.train(3).model.state_dict()), dict(tied.model.state_dict()))


def test_a_resumed_run_continues_bit_for_bit(tmp_path):
    through = Run().train(6)
    parts = {"model": through.model, "optimizer": through.optimizer, "scaler": through.scaler}
    torch.save({name: part.state_dict() for name, part in parts.items()} | {"step": 6}, tmp_path / "ckpt.pt")
    through.train(6)
    saved = torch.load(tmp_path / "ckpt.pt", weights_only=True)
    resumed = Run(seed=5)
    resumed.model.load_state_dict(saved["model"])
    resumed.optimizer.load_state_dict(saved["optimizer"])
    resumed.scaler.load_state_dict(saved["scaler"])
    resumed.step = saved["step"]
    resumed.train(6)
    assert resumed.losses == through.losses[6:]
    assert_same(states(resumed.optimizer), states(through.optimizer))


def test_accumulated_gradients_train_as_one_batch():
    one, four = Run(accumulate=1, dtype=None), Run(accumulate=4, dtype=None)
    for run in (one, four):
        run.model.double()
        run.train(4)
    torch.testing.assert_close(dict(four.model.state_dict()), dict(one.model.state_dict()), rtol=1e-9, atol=1e-11)


def test_an_overflow_skips_the_step_and_lowers_the_scale():
    run = Run(dtype=torch.float16).train(2)
    before, state = {name: p.clone() for name, p in run.model.state_dict().items()}, states(run.optimizer)
    scale = run.scaler.get_scale()
    run.model.h[0].c_proj.weight.register_hook(lambda gradient: gradient * float("inf"))
    run.train(1)
    assert_same(dict(run.model.state_dict()), before)
    assert_same(states(run.optimizer), state)
    assert run.scaler.get_scale() == scale / 2
