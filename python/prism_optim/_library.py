"""Loads the operators, and the tables of options they hold."""

from __future__ import annotations

import json
import pathlib
from typing import Any, TypedDict

import torch

from ._build import TORCH_VERSION

if torch.__version__ != TORCH_VERSION:
    raise ImportError(
        f"prism_optim was built with torch {TORCH_VERSION}, but torch {torch.__version__} is running; build it again with "
        "`pip install --no-build-isolation --force-reinstall --no-deps .` in its source folder, or install that torch"
    )
_torch_ops: Any = torch.ops
_torch_ops.load_library(pathlib.Path(__file__).parent / "libprism_ops.so")
ops: Any = _torch_ops.prism
_torch_classes: Any = torch.classes
Engine: Any = _torch_classes.prism.Engine


class Option(TypedDict):
    name: str
    type: str
    doc: str
    default: Any
    mixed_default: Any  # inside Mixed


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


TABLES: dict[str, dict[str, Option]] = {
    optimizer: {line["name"]: line for line in table["options"]} for optimizer, table in json.loads(ops.tables()).items()
}


def defaults(optimizer: str, *, mixed: bool = False) -> dict[str, Any]:
    """The default value of every option of an optimizer, by its lower-case name; with `mixed`, in a group of `Mixed`."""
    if optimizer not in TABLES:
        raise ValueError(f"unknown optimizer '{optimizer}'; expected one of {', '.join(TABLES)}")
    return {name: _tuples(line["mixed_default"] if mixed else line["default"]) for name, line in TABLES[optimizer].items()}
