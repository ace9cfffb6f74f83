"""Trains a tiny Qwen2 with Hugging Face's Trainer and PRISM, passed through `optimizers=`.

    python examples/hf_trainer.py
"""

import tempfile

import prism_optim
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM, Trainer, TrainingArguments

torch.manual_seed(0)
model = Qwen2ForCausalLM(
    Qwen2Config(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=32, tie_word_embeddings=True,
    )
)  # fmt: skip
start = torch.randint(64, (64, 1))
tokens = (start + 3 * torch.arange(24)) % 64  # counting in threes
dataset = [{"input_ids": row, "labels": row} for row in tokens]

steps = 30
optimizer = prism_optim.Mixed(model, lr=0.005, aux_lr=0.02)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.1, 1 - step / steps))

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, max_steps=steps, per_device_train_batch_size=16, logging_steps=10, save_strategy="no", report_to=[],
        disable_tqdm=True, use_cpu=not torch.cuda.is_available(),
    )  # fmt: skip
    trainer = Trainer(model=model, args=arguments, train_dataset=dataset, optimizers=(optimizer, scheduler))
    trainer.train()

losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
print("loss", " -> ".join(f"{float(loss):.3f}" for loss in losses))
