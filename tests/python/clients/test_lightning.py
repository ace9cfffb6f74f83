"""Lightning: clipping, resuming, weight averaging and layers that are unfrozen on the way."""

import warnings

import lightning
import prism_optim
import pytest
import torch
from lightning.pytorch.callbacks import BaseFinetuning, StochasticWeightAveraging
from optim_cases import assert_same, states
from tiny_models import regression, tiny_net
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore", module="lightning")


class Module(lightning.LightningModule):
    def __init__(self, seed=0, scheduler=None, **options):
        super().__init__()
        self.net = tiny_net(seed)
        self.options = {"lr": 0.02, "aux_lr": 0.005} | options
        self.scheduler = scheduler
        self.losses = []

    def training_step(self, batch, index):
        x, y = batch
        loss = (self.net(x) - y).square().mean()
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        optimizer = prism_optim.Mixed(self, **self.options)
        if self.scheduler is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": self.scheduler(optimizer), "interval": "step"}}


def fit(module, folder, *, epochs=4, resume=None, **arguments):
    trainer = lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
        enable_checkpointing=False, **arguments,
    )  # fmt: skip
    trainer.fit(module, DataLoader(TensorDataset(*regression()), batch_size=16), ckpt_path=resume, weights_only=False if resume else None)
    return trainer


def weights(module):
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


@pytest.mark.parametrize("clip", [{"gradient_clip_val": 0.1}, {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}])
def test_clipping_accumulation_and_bfloat16_train(tmp_path, clip):
    module = Module()
    fit(module, tmp_path, epochs=8, accumulate_grad_batches=2, precision="bf16-mixed", **clip)
    assert module.losses[-1] < module.losses[0]
    assert all(p.grad is None or p.grad.abs().max() <= 0.1 for p in module.parameters())


def test_clipping_a_capturable_step_under_mixed_precision_is_lightning_s_to_refuse(tmp_path):
    with pytest.raises(RuntimeError, match="Mixed, does not allow for gradient clipping because it performs unscaling of gradients internally"):
        fit(Module(capturable=True), tmp_path, precision="bf16-mixed", gradient_clip_val=0.1)
    fit(Module(capturable=True), tmp_path, epochs=1, gradient_clip_val=0.1)


def test_a_resumed_run_continues_bit_for_bit(tmp_path):
    def one_cycle(optimizer):
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, [0.02, 0.005], total_steps=24)

    through, resumed = Module(scheduler=one_cycle), Module(3, scheduler=one_cycle)
    trainer = fit(through, tmp_path, epochs=2)
    trainer.save_checkpoint(tmp_path / "two.ckpt")
    again = Module(scheduler=one_cycle)
    whole = fit(again, tmp_path, epochs=4)
    rest = fit(resumed, tmp_path, epochs=4, resume=tmp_path / "two.ckpt")
    assert_same(weights(resumed), weights(again))
    assert_same(states(rest.optimizers[0]), states(whole.optimizers[0]))


def test_weights_are_averaged(tmp_path):
    module = Module()
    trainer = fit(module, tmp_path, epochs=6, callbacks=[StochasticWeightAveraging(swa_lrs=[0.01, 0.002], swa_epoch_start=2, annealing_epochs=2)])
    assert [group["lr"] for group in trainer.optimizers[0].param_groups] == pytest.approx([0.01, 0.002])
    assert module.losses[-1] < module.losses[0]


class Unfreeze(BaseFinetuning):
    def freeze_before_training(self, module):
        self.freeze(module.net.backbone)

    def finetune_function(self, module, epoch, optimizer):
        if epoch == 1:
            self.unfreeze_and_add_param_group(module.net.backbone, optimizer)


@pytest.mark.parametrize("tie_rates", [False, True])
def test_layers_unfrozen_on_the_way_are_routed_by_name(tmp_path, tie_rates):
    module, start = Module(tie_rates=tie_rates), Module()
    trainer = fit(module, tmp_path, epochs=3, callbacks=[Unfreeze()])
    optimizer = trainer.optimizers[0]
    placed = {name: (group["optimizer"], optimizer._rate(group)) for group in optimizer.param_groups for name in group["param_names"]}
    assert placed == {
        "net.head.weight": ("adamw", 0.005), "net.head.bias": ("adamw", 0.005),
        "net.backbone.0.weight": ("prism", pytest.approx(0.0005 * 4)), "net.backbone.2.weight": ("prism", pytest.approx(0.0005 * 4)),
        "net.backbone.0.bias": ("adamw", pytest.approx(0.0005)), "net.backbone.2.bias": ("adamw", pytest.approx(0.0005)),
    }  # fmt: skip
    assert all((p != q).any() for p, q in zip(module.parameters(), start.parameters(), strict=True))


class UnfreezeOnResuming(Unfreeze):
    """Lightning restores the groups of a run that resumes, but leaves its layers frozen, with torch's optimizers too."""

    def on_fit_start(self, trainer, module):
        resumes = self._restarting
        super().on_fit_start(trainer, module)
        if resumes:
            self.make_trainable(module.net.backbone)


def test_a_run_with_unfrozen_layers_resumes(tmp_path):
    through, resumed = Module(), Module(3)
    trainer = fit(through, tmp_path, epochs=2, callbacks=[UnfreezeOnResuming()])
    trainer.save_checkpoint(tmp_path / "two.ckpt")
    whole = Module()
    fit(whole, tmp_path, epochs=4, callbacks=[Unfreeze()])
    fit(resumed, tmp_path, epochs=4, resume=tmp_path / "two.ckpt", callbacks=[UnfreezeOnResuming()])
    assert_same(weights(resumed), weights(whole))
