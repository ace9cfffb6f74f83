"""The mark `gpu`: tests that are passed over where there is none, and that `make test-gpu` runs. And a torchvision that can be imported."""

import importlib.util

import pytest


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a GPU")


def declare_torchvision_operators():
    """Lets torchvision be imported where its compiled operators do not load: a wheel for CUDA beside a torch for the CPU. No test uses them."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


if importlib.util.find_spec("torchvision") is not None:  # timm and torchmetrics import it
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        declared = declare_torchvision_operators()
