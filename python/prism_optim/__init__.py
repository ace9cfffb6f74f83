"""PRISM and its relatives as `torch.optim.Optimizer` classes.

    optimizer = prism_optim.Mixed(model, lr=0.005, aux_lr=0.02)    # hidden matrices → PRISM, the rest → AdamW

You can also use `Prism`, `Muon`, `TikhonovMuon`, `AdamW`, `Adam`, `AdaGrad`, `RMSprop`, `SSD`, `RMSspectral`, `ADAspectral`, `Shampoo` and
`SOAP` on their own. `param_groups` and `routing` show how a model is split; `inspect` shows what a step did, and `plot` draws it.
"""

from ._build import TORCH_VERSION, __version__
from .base import Optimizer
from .optimizers import *  # noqa: F403
from .optimizers import __all__ as _classes
from .routing import Rule, default_rules, param_groups, routing
from .spectra import Spectrum, inspect, plot

__all__ = [
    "TORCH_VERSION",
    "Optimizer",
    "Rule",
    "Spectrum",
    "__version__",
    "default_rules",
    "inspect",
    "param_groups",
    "plot",
    "routing",
]
__all__ += _classes
