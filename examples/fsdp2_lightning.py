"""PRISM with PyTorch Lightning and FSDP2: `configure_model` shards the network, `configure_optimizers` returns one Mixed.

    pip install lightning
    python examples/fsdp2_lightning.py --devices 8 --accelerator cuda
"""

import argparse
import logging

import lightning
import prism_optim
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard


class Regression(lightning.LightningModule):
    def configure_model(self):
        if not hasattr(self, "network"):
            torch.manual_seed(0)
            self.network = torch.nn.Sequential(
                torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)
            )
            fully_shard(self.network, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, index):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.network(inputs), targets)

    def on_train_batch_end(self, outputs, batch, index):
        if self.trainer.is_last_batch:
            self.print(f"loss {outputs['loss'].item():.4f}")

    def configure_optimizers(self):
        optimizer = prism_optim.Mixed(self, lr=0.005, aux_lr=0.02)
        self.print(optimizer.plan())
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--accelerator", default="cpu")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--folder", help="where to save the state after the last epoch")
    parser.add_argument("--resume", help="a saved state to continue")
    arguments = parser.parse_args()

    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    torch.manual_seed(0)
    inputs = torch.randn(512, 16)
    data = torch.utils.data.TensorDataset(inputs, inputs[:, :1].sin())
    trainer = lightning.Trainer(
        max_epochs=arguments.epochs, accelerator=arguments.accelerator, devices=arguments.devices,
        strategy=ModelParallelStrategy(data_parallel_size=arguments.devices, tensor_parallel_size=1),
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Regression(), torch.utils.data.DataLoader(data, batch_size=32), ckpt_path=arguments.resume)
    if arguments.folder:
        trainer.save_checkpoint(arguments.folder)
