"""PRISM with Hugging Face's Trainer and FSDP2. Trainer takes no optimizer then: give it the class and its arguments.

    torchrun --nproc-per-node 8 examples/fsdp2_trainer.py
"""

import tempfile

import prism_optim
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM, Trainer, TrainingArguments
from transformers.trainer_callback import TrainerCallback

torch.manual_seed(0)
model = Qwen2ForCausalLM(
    Qwen2Config(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=32, tie_word_embeddings=False,
    )
)  # fmt: skip
start = torch.randint(64, (64, 1))
tokens = (start + 3 * torch.arange(24)) % 64  # counting in threes
dataset = [{"input_ids": row, "labels": row} for row in tokens]


class PrintPlan(TrainerCallback):
    def on_train_end(self, args, state, control, optimizer=None, **_):
        if state.is_world_process_zero:
            print(optimizer.optimizer.plan())


with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, max_steps=30, per_device_train_batch_size=8, logging_steps=10, save_strategy="no", report_to=[],
        disable_tqdm=True, use_cpu=not torch.cuda.is_available(), lr_scheduler_type="linear",
        fsdp=True,  # type: ignore[arg-type]  # documented as a bool
        fsdp_config={"version": 2, "transformer_layer_cls_to_wrap": ["Qwen2DecoderLayer"]},
    )  # fmt: skip
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=dataset,
        optimizer_cls_and_kwargs=(prism_optim.Mixed, {"model": model, "lr": 0.005, "aux_lr": 0.02}),
        callbacks=[PrintPlan()],
    )
    trainer.train()

if trainer.is_world_process_zero():
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print("\n".join(f"loss {float(loss):.4f}" for loss in losses))
