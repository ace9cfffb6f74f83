"""Loads the operators, and the tables of options they hold."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Sequence
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

PARAMETERS = ("params", "param_names")  # the keys of a group that are no options
COMPILED = "prism_optim: the step is compiled already; compile without fullgraph=True, or leave optimizer.step() out of what is compiled"


def engine_for(engine: Any, parameters: Sequence[torch.Tensor], own: Any) -> Any:
    """Returns the engine, wrapped if the processes of `own` share the work or if some of these parameters are DTensors. Torch's DTensor is
    imported only then."""
    engine = getattr(engine, "plain", engine)
    if own is None and not any(hasattr(parameter, "device_mesh") for parameter in parameters):
        return engine
    from .distributed import ShardedEngine

    return ShardedEngine(engine, own)


def to_json(value: Any) -> str:
    """JSON, in which numpy scalars and tensors of one element are numbers. Types and numbers that JSON does not have become text, which the
    engine refuses under the option's name."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        if hasattr(value, "item") and value.nbytes == value.itemsize:
            value = value.item()
        is_known = value is None or isinstance(value, (int, str)) or (isinstance(value, float) and math.isfinite(value))
        return value if is_known else str(value)

    return json.dumps(plain(value))


def to_number(value: Any) -> Any:
    """Converts numpy's scalars to floats, which the engine takes as numbers; returns all else, such as tensors, as it is."""
    return value if isinstance(value, torch.Tensor) or not hasattr(value, "__float__") else float(value)


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

# The names of the options that are numbers, and of the others.
NUMBERS = {optimizer: [name for name, line in table.items() if line["type"] == "number"] for optimizer, table in TABLES.items()}
OTHERS = {optimizer: [name for name, line in table.items() if line["type"] != "number"] for optimizer, table in TABLES.items()}


def defaults(optimizer: str, *, mixed: bool = False) -> dict[str, Any]:
    """The default value of every option of an optimizer, by its lower-case name; with `mixed`, in a group of `Mixed`."""
    if optimizer not in TABLES:
        raise ValueError(f"unknown optimizer '{optimizer}'; expected one of {', '.join(TABLES)}")
    return {name: _tuples(line["mixed_default"] if mixed else line["default"]) for name, line in TABLES[optimizer].items()}
