"""transformers' Trainer: every type of schedule, resuming, and optimizers that Trainer makes itself."""

import prism_optim
import pytest
import torch
from optim_cases import assert_same
from tiny_models import counting
from transformers import Qwen2Config, Qwen2ForCausalLM, Trainer, TrainingArguments
from transformers.trainer_utils import SchedulerType

MORE = {
    "cosine_with_min_lr": {"min_lr": 1e-3}, "cosine_warmup_with_min_lr": {"min_lr": 1e-3}, "warmup_stable_decay": {"num_decay_steps": 3},
    "cosine_with_restarts": {"num_cycles": 2}, "polynomial": {"power": 2.0},
}  # fmt: skip


def qwen2(seed=0):
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)
    )


def mixed(model):
    return prism_optim.Mixed(model, lr=0.02, aux_lr=0.005, weight_decay=0.01)


def trainer(folder, *, steps=8, model=None, make=mixed, scheduler=None, schedule="linear", how=None, **arguments):
    model = model or qwen2()
    optimizer = None if how else make(model)
    arguments = TrainingArguments(
        output_dir=folder, max_steps=steps, per_device_train_batch_size=8, save_steps=4, report_to=[], disable_tqdm=True, use_cpu=True,
        logging_strategy="no", seed=1, lr_scheduler_type=schedule, warmup_steps=2, lr_scheduler_kwargs=MORE.get(schedule, {}), **arguments,
    )  # fmt: skip
    data = [{"input_ids": row, "labels": row} for row in counting(40)]
    given = {"optimizer_cls_and_kwargs": how} if how else {"optimizers": (optimizer, scheduler(optimizer) if scheduler else None)}
    return Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:8], **given)


def kinds(trainer):
    return {group["optimizer"] for group in trainer.optimizer.param_groups}


def weights(trainer):
    return {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


@pytest.mark.parametrize("schedule", [kind.value for kind in SchedulerType])
def test_every_schedule_moves_both_groups_and_resumes_bit_for_bit(tmp_path, schedule):
    more = {"eval_strategy": "steps", "eval_steps": 2, "metric_for_best_model": "loss"} if schedule in ("reduce_lr_on_plateau", "greedy") else {}
    through = trainer(tmp_path / "a", schedule=schedule, **more)
    through.train()
    prism, adamw = (group["lr"] for group in through.optimizer.param_groups)
    if schedule not in ("greedy", "cosine_with_min_lr"):  # which have a floor of their own for every group
        assert prism == pytest.approx(4 * adamw)
    resumed = trainer(tmp_path / "b", model=qwen2(3), schedule=schedule, **more)
    resumed.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-4"))
    assert_same(weights(resumed), weights(through))
    assert [g["lr"] for g in resumed.optimizer.param_groups] == [g["lr"] for g in through.optimizer.param_groups]


def test_a_scheduler_of_torch_s_is_passed_with_the_optimizer(tmp_path):
    def one_cycle(optimizer):
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, [0.02, 0.005], total_steps=9)

    through = trainer(tmp_path / "a", scheduler=one_cycle)
    through.train()
    resumed = trainer(tmp_path / "b", model=qwen2(3), scheduler=one_cycle)
    resumed.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-4"))
    assert_same(weights(resumed), weights(through))
    assert through.optimizer.param_groups[1]["momentum"] != 0.9


def test_trainer_makes_mixed_from_the_model(tmp_path):
    """With `model` among the arguments Trainer passes it in place of its groups, so that names decide."""
    model, plain = qwen2(), trainer(tmp_path / "a")
    made = trainer(tmp_path / "b", model=model, how=(prism_optim.Mixed, {"model": model, "lr": 0.02, "aux_lr": 0.005, "weight_decay": 0.01}))
    plain.train()
    made.train()
    assert_same(weights(made), weights(plain))


def test_trainer_makes_mixed_from_a_factory(tmp_path):
    class Factory:
        def __call__(self, model, **options):
            return prism_optim.Mixed(model, **options)

    plain = trainer(tmp_path / "a")
    made = trainer(tmp_path / "b", how=(Factory, {"lr": 0.02, "aux_lr": 0.005, "weight_decay": 0.01}))
    plain.train()
    made.train()
    assert_same(weights(made), weights(plain))


def test_trainer_makes_mixed_from_its_groups_by_shape_with_a_note(tmp_path):
    def made(folder, seed=0):
        return trainer(folder, model=qwen2(seed), how=(prism_optim.Mixed, {"lr": 0.02, "aux_lr": 0.005}), weight_decay=0.1)

    through, resumed = made(tmp_path / "a"), made(tmp_path / "b", 3)
    with pytest.warns(UserWarning, match="parameters have no names, so they are routed by shape"):
        through.train()
    assert kinds(through) == {"prism", "adamw"}
    assert {(g["optimizer"], g["weight_decay"]) for g in through.optimizer.param_groups} == {("prism", 0.1), ("adamw", 0.0)}
    with pytest.warns(UserWarning, match="parameters have no names"):
        resumed.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-4"))
    assert_same(weights(resumed), weights(through))


def test_trainer_makes_a_class_alone(tmp_path):
    made = trainer(tmp_path, how=(prism_optim.AdamW, {"lr": 0.005, "betas": (0.9, 0.95)}), weight_decay=0.1)
    made.train()
    assert [(g["optimizer"], g["weight_decay"]) for g in made.optimizer.param_groups] == [("adamw", 0.1), ("adamw", 0.0)]


def test_accumulation_clipping_and_bfloat16_train(tmp_path):
    made = trainer(tmp_path, steps=30, gradient_accumulation_steps=2, max_grad_norm=0.5, bf16=True, schedule="constant")
    first = made.evaluate()["eval_loss"]
    made.train()
    assert made.evaluate()["eval_loss"] < 0.6 * first
