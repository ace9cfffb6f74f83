"""The classes that the suites run on: one line for each of prism_optim and of torch.optim. A new class adds one line."""

import dataclasses
import inspect
from typing import Any

import prism_optim
import pytest
import torch

torch.set_num_threads(1)  # the matrices are tiny: threads would only wait for one another


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    lr: float  # at which the quadratic below falls to a tenth within 60 steps
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    matrices_only: bool = True
    library: Any = prism_optim

    @property
    def cls(self):
        return getattr(self.library, self.name)

    @property
    def ours(self):
        return self.library is prism_optim

    def has(self, option):
        return option in inspect.signature(self.cls).parameters

    def make(self, params, **options):
        return self.cls(params, **({"lr": self.lr} | self.options | options))

    def __str__(self):
        return "-".join([*([] if self.ours else ["torch"]), self.name, *map(str, self.options.values())])


CASES = [
    Case("Prism", 0.3),
    Case("Prism", 0.4, {"covariance": "ema"}),
    Case("Prism", 0.4, {"covariance": "sketch", "rank": 2}),
    Case("Prism", 0.4, {"covariance": "subspace", "rank": 2}),
    Case("Prism", 0.4, {"covariance": "ema", "covariance_every": 2}),
    Case("Prism", 0.3, {"side": "both"}),
    Case("Prism", 0.3, {"side": "long"}),
    Case("Muon", 0.4),
    Case("Muon", 0.4, {"normalize": "rows"}),
    Case("TikhonovMuon", 0.3),
    Case("TikhonovMuon", 0.3, {"damping_absolute": 0.1}),
    Case("AdamW", 0.1, matrices_only=False),
    Case("Adam", 0.1, matrices_only=False),
    Case("AdaGrad", 0.5, matrices_only=False),
    Case("RMSprop", 0.05, matrices_only=False),
    Case("SSD", 0.1),
    Case("RMSspectral", 0.05),
    Case("ADAspectral", 0.3),
    Case("Shampoo", 0.5),
    Case("SOAP", 0.1),
]

# A promise of torch.optim is tested on its own classes too.
TORCH_CASES = [
    Case("SGD", 0.1, {"momentum": 0.9}, False, torch.optim),
    Case("AdamW", 0.1, {}, False, torch.optim),
    Case("Adam", 0.1, {"amsgrad": True}, False, torch.optim),
    Case("Adagrad", 0.5, {}, False, torch.optim),
    Case("RMSprop", 0.05, {"momentum": 0.5}, False, torch.optim),
    Case("Muon", 0.4, {}, True, torch.optim),
]

every_class = pytest.mark.parametrize("case", CASES, ids=str)
some_classes = pytest.mark.parametrize("case", [c for c in CASES if str(c) in ("Prism", "AdamW", "Shampoo")], ids=str)
torch_too = pytest.mark.parametrize("case", CASES + TORCH_CASES, ids=str)


def parameters(case, *, dtype=torch.float32, seed=0):
    """Two matrices of one shape, one of another and a stack; a vector where the class takes one."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(6, 4), (6, 4), (3, 5), (2, 4, 3) if case.ours else (4, 3)] + ([] if case.matrices_only else [(7,)])
    return [(f"layer{i}", torch.nn.Parameter(torch.randn(s, generator=generator).to(dtype))) for i, s in enumerate(shapes)]


def set_gradients(named, seed, *, dtype=None):
    generator = torch.Generator().manual_seed(seed)
    for _, p in named:
        p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)


def train(optimizer, named, steps, first_seed=100):
    for step in range(steps):
        set_gradients(named, first_seed + step)
        optimizer.step()


def values(named):
    return [p.detach().clone() for _, p in named]


def states(optimizer):
    return [{key: value.clone() for key, value in optimizer.state[p].items()} for g in optimizer.param_groups for p in g["params"]]


def assert_same(left, right):
    torch.testing.assert_close(left, right, rtol=0, atol=0)
