"""Uses PRISM in PyTorch Lightning: `configure_optimizers` returns one Mixed and any scheduler.

    pip install lightning
    python examples/lightning_module.py
"""

import logging

import lightning
import prism_optim
import torch


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))

    def training_step(self, batch, index):
        inputs, targets = batch
        self.last_loss = torch.nn.functional.mse_loss(self.network(inputs), targets)
        return self.last_loss

    def configure_optimizers(self):
        optimizer = prism_optim.Mixed(self, lr=0.005, aux_lr=0.02)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)]


if __name__ == "__main__":
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    lightning.seed_everything(0, verbose=False)
    inputs = torch.randn(512, 16)
    data = torch.utils.data.TensorDataset(inputs, inputs[:, :1].sin())
    module = Regression()
    trainer = lightning.Trainer(
        max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    )
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=64, shuffle=True))
    print(f"loss {module.last_loss.item():.4f}")
