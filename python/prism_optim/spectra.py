"""The effect of the last step on each matrix, and a chart of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from .base import Optimizer


@dataclasses.dataclass(frozen=True)
class Spectrum:
    """One matrix at the last step, in float64. The directions are the eigenvectors of the Gram matrix that shaped the update, largest first.

    For stacked matrices (e, m, n) each tensor has the leading dimension e.
    """

    singular_values: Tensor  # of T, the (Nesterov) momentum
    snr: Tensor  # per direction: ‖Tv‖/‖Dv‖, where D is the gradient minus the momentum
    gain: Tensor  # per direction: ‖Ov‖, measured on the update O
    theory: Tensor  # per direction: (1 + γ²/SNR²)^(−1/2)
    weight_norm: Tensor  # Frobenius
    update_norm: Tensor  # Frobenius, before learning rate and scale


def inspect(optimizer: Optimizer) -> dict[str, Spectrum]:
    """Returns the spectra of the last step by parameter name. Call it between `step()` and `zero_grad()`.

    Methods without spectra (AdamW, Shampoo, …) and PRISM with `side="both"` have no entries.

    >>> weight = torch.nn.Parameter(torch.eye(4, 3))
    >>> weight.grad = torch.eye(4, 3)
    >>> optimizer = Prism([("weight", weight)], gamma=1.0, momentum=0.95, nesterov=False, solver="exact")
    >>> optimizer.step()
    >>> inspect(optimizer)["weight"].gain.numpy().round(4)  # momentum starts at zero: 1/√(1 + (0.95/0.05)²)
    array([0.0526, 0.0526, 0.0526])
    """
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"inspect: expected an optimizer of prism_optim, got {type(optimizer).__name__}")
    optimizer._sync()
    if all(parameter.grad is None for group in optimizer.param_groups for parameter in group["params"]):
        raise RuntimeError("inspect: no parameter has a gradient; call it between step() and zero_grad()")
    names, values = optimizer._engine.spectra()
    return {name: Spectrum(*values[6 * i : 6 * i + 6]) for i, name in enumerate(names)}


def plot(spectra: Mapping[str, Spectrum], axes: Any = None) -> Any:
    """Draws the gain of every direction over its SNR, beside the gain of the exact solver, and returns the axes. Needs matplotlib."""
    try:
        import matplotlib.pyplot as pyplot
    except ImportError:
        raise ImportError("plot: matplotlib is not installed; run `pip install matplotlib`") from None
    if axes is None:
        axes = pyplot.figure().add_subplot()
    for name, spectrum in spectra.items():
        axes.scatter(spectrum.snr.flatten().cpu(), spectrum.gain.flatten().cpu(), s=6, label=name)
    points = sorted(
        (snr, theory)
        for spectrum in spectra.values()
        for snr, theory in zip(spectrum.snr.flatten().tolist(), spectrum.theory.flatten().tolist(), strict=True)
    )
    axes.plot([snr for snr, _ in points], [theory for _, theory in points], color="black", linewidth=1, label="exact")
    axes.set(xscale="log", xlabel="SNR", ylabel="gain")
    if len(spectra) <= 12:
        axes.legend()
    return axes
