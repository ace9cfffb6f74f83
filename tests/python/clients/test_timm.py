"""timm: layer decay, its schedules, its scaler and its moving average."""

import prism_optim
import pytest
import timm
import timm.optim
import timm.scheduler
import timm.utils
import torch
from optim_cases import assert_same, states


def vit(seed=0):
    torch.manual_seed(seed)
    return timm.create_model("vit_tiny_patch16_224", img_size=16, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=5)


def decayed_groups(model, decay=0.5):
    """timm's groups, with names, so that Mixed routes by them."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    groups = timm.optim.param_groups_layer_decay(model, weight_decay=0.05, no_weight_decay_list=model.no_weight_decay(), layer_decay=decay)
    return [group | {"params": [(names[p], p) for p in group["params"]]} for group in groups]


def images(seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(5, (16,), generator=generator)
    pictures = 0.3 * torch.randn(16, 3, 16, 16, generator=generator)
    pictures[torch.arange(16), 0, labels * 3] += 2.0
    return pictures, labels


def placed(optimizer):
    return {name: group["optimizer"] for group in optimizer.param_groups for name in group["param_names"]}


def test_groups_of_layer_decay_are_routed_by_name_and_keep_their_scale():
    model = vit()
    optimizer = prism_optim.Mixed(decayed_groups(model), lr=0.02, aux_lr=0.005)
    assert placed(optimizer) == placed(prism_optim.Mixed(model))
    scales = {name: group["lr_scale"] for group in optimizer.param_groups for name in group["param_names"]}
    assert scales["head.weight"] == 1.0 and scales["blocks.1.mlp.fc1.weight"] == 0.5 and scales["pos_embed"] == 0.125
    decays = {name: group["weight_decay"] for group in optimizer.param_groups for name in group["param_names"]}
    assert decays["blocks.0.attn.qkv.weight"] == 0.05 and decays["blocks.0.attn.qkv.bias"] == decays["pos_embed"] == 0.0


def test_a_schedule_multiplies_each_group_s_rate_by_its_scale():
    model = vit()
    optimizer = prism_optim.Mixed(decayed_groups(model), lr=0.02, aux_lr=0.005)
    start = [group["lr"] for group in optimizer.param_groups]
    scheduler = timm.scheduler.CosineLRScheduler(optimizer, t_initial=10, warmup_t=2, warmup_lr_init=1e-4)
    losses = []
    for step in range(10):
        pictures, labels = images(step)
        loss = torch.nn.functional.cross_entropy(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step(step + 1)
        losses.append(loss.item())
        if step + 1 == 5:
            groups = optimizer.param_groups
            factor = groups[0]["lr"] / (start[0] * groups[0]["lr_scale"])
            assert [g["lr"] for g in groups] == pytest.approx([factor * lr * g["lr_scale"] for lr, g in zip(start, groups, strict=True)])
    assert min(losses[-3:]) < losses[0]


def test_groups_of_layer_decay_without_names_are_routed_by_shape_with_a_note():
    model = vit()
    groups = timm.optim.param_groups_layer_decay(model, weight_decay=0.05, layer_decay=0.5)
    with pytest.warns(UserWarning, match="parameters have no names, so they are routed by shape"):
        optimizer = prism_optim.Mixed(groups, lr=0.02, aux_lr=0.005)
    assert {group["optimizer"] for group in optimizer.param_groups} == {"prism", "adamw"}
    assert all("lr_scale" in group for group in optimizer.param_groups)


def test_the_scaler_and_the_moving_average_train_and_resume():
    def run(steps, saved=None, seed=0):
        model = vit(seed)
        optimizer = prism_optim.Mixed(decayed_groups(model), lr=0.02, aux_lr=0.005)
        scaler, average = timm.utils.NativeScaler(device="cpu"), timm.utils.ModelEmaV3(model, decay=0.9)
        first = 0
        if saved:
            for part, state in zip((model, optimizer, scaler, average.module), saved, strict=True):
                part.load_state_dict(state)
            first = 3
        for step in range(first, steps):
            pictures, labels = images(step)
            with torch.autocast("cpu", torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(pictures).float(), labels)
            optimizer.zero_grad()
            scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
            average.update(model)
        return model, optimizer, scaler, average.module

    through = run(6)
    resumed = run(6, [part.state_dict() for part in run(3)], seed=4)
    assert_same(dict(resumed[0].state_dict()), dict(through[0].state_dict()))
    assert_same(dict(resumed[3].state_dict()), dict(through[3].state_dict()))
    assert_same(states(resumed[1]), states(through[1]))
