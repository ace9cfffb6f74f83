"""Writes the classes of prism_optim from the tables of the compiled library: name, type, default and help of every option."""

from __future__ import annotations

import argparse
import inspect
import itertools
import json
import pathlib
import textwrap
from typing import Any

import torch

TYPES = {
    "number": "float",
    "integer": "int",
    "boolean": "bool",
    "integers": "Sequence[int]",
    "pair": "tuple[float, float]",
    "coefficients": "str | Sequence[Sequence[float]]",
    "schedule": "Mapping[str, Any]",
}

HEADER = '''"""The optimizers, generated from the tables of the C++ library when it was built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor
from torch.optim.optimizer import ParamsT

from .base import Optimizer
from .mixed import RoutedOptimizer
from .routing import Heads, Model

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
'''

SHARING = """\
        own: the processes that hold the same parameters, as under DistributedDataParallel, and share the work: each matrix is shaped by one
            of them, which sends the update to the others; None: every process shapes all matrices
        comm_dtype: bfloat16: round updates to 2 bytes an element on their way from the process that shaped them; None: float32"""

CLASS = '''

class {name}(Optimizer):
    """{summary}

    Args:
        params: parameters, named parameters (`model.named_parameters()`) or groups of them
{documents}
{sharing}

    >>> weight = torch.nn.Parameter(torch.ones(2, 3))
    >>> optimizer = {name}([weight], lr=0.1)
    >>> weight.sum().backward()
    >>> for _ in range(2):
    ...     optimizer.step()
    >>> bool((weight < 1).all())
    True
    """

    kind = "{kind}"

    def __init__(
        self,
        params: ParamsT,
{signature}
        own: ProcessGroup | None = None,
        comm_dtype: Literal["bfloat16"] | None = None,
    ) -> None:
        super().__init__(params, {{{values}}}, own, comm_dtype)
'''

MIXED = '''

class Mixed(RoutedOptimizer):
    """One optimizer for a whole model: hidden matrices go to PRISM; embeddings, heads, norms and biases go to AdamW.

    Its defaults are the recommended setting: PRISM with the averaged covariance of the inputs' noise, lightly damped. For the update as published, give
    `covariance="instant", gamma=1, side="right", coefficients="jordan"`.
    `print(optimizer.routing())` shows the optimizer of each parameter. For any other combination, create groups with `param_groups`.

    Args:
        model: the module to train, its `named_parameters()`, or parameter groups; groups that name their optimizer, as those of
            `param_groups` do, hold their own options
{documents}
        head: names of the output heads, parameters or modules, instead of the rules that guess them; `[]`: there are none
        tie_rates: for programs that write one learning rate into every group: each group then trains at that rate times its `lr_ratio`, the
            ratio of its rate to the first group's at construction
{sharing}

    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> optimizer = Mixed(model, lr=0.005, aux_lr=0.005)
    >>> model(torch.ones(2, 4)).sum().backward()
    >>> optimizer.step()
    >>> [(group["optimizer"], len(group["params"])) for group in optimizer.param_groups]
    [('prism', 1), ('adamw', 3)]
    """

    def __init__(
        self,
        model: Model | Sequence[Mapping[str, Any]],
{signature}
        head: Heads = None,
        tie_rates: bool = False,
        own: ProcessGroup | None = None,
        comm_dtype: Literal["bfloat16"] | None = None,
    ) -> None:
        super().__init__(model, {{{values}}}, _MIXED_DEFAULTS, head, tie_rates, own, comm_dtype)


_MIXED_DEFAULTS: dict[str, Any] = {{{defaults}}}
'''


def type_of(option: dict[str, Any]) -> str:
    name = option["type"]
    if option["name"] == "lr":
        return "float | Tensor"
    return TYPES[name] if name in TYPES else "Literal[" + ", ".join(f'"{word}"' for word in name.split("|")) + "]"


def literal(option: dict[str, Any]) -> str:
    """Returns the default as a Python literal."""
    value = option["default"]
    if option["type"] == "number":
        return repr(float(value))
    return repr(tuple(value) if isinstance(value, list) else value).replace("'", '"')


def documents(options: list[dict[str, Any]]) -> str:
    lines = []
    for option in options:
        lines += textwrap.wrap(f"{option['name']}: {option['doc']}", 128, initial_indent=" " * 8, subsequent_indent=" " * 12)
    return "\n".join(lines)


def signature(options: list[dict[str, Any]], positional: int) -> str:
    lines = [f"        {option['name']}: {type_of(option)} = {literal(option)}," for option in options]
    lines.insert(positional, "        *,")
    return "\n".join(lines)


def values(options: list[dict[str, Any]]) -> str:
    return ", ".join(f'"{option["name"]}": {option["name"]}' for option in options)


def positional(name: str, table: list[dict[str, Any]]) -> list[str]:
    """Returns the options that torch's class of this name takes by position, up to the first that we lack; if there is none, just `lr`."""
    theirs = {each.lower(): getattr(torch.optim, each) for each in torch.optim.__all__}.get(name.lower())
    order = list(inspect.signature(theirs).parameters.values())[1:] if theirs else []
    ours = {line["name"] for line in table}
    shared = itertools.takewhile(lambda option: option.name in ours and option.kind is option.POSITIONAL_OR_KEYWORD, order)
    return [option.name for option in shared] or ["lr"]


def write_class(kind: str, name: str, summary: str, table: list[dict[str, Any]]) -> str:
    first = positional(name, table)
    by_name = {line["name"]: line for line in table}
    table = [by_name.pop(option) for option in first] + list(by_name.values())
    return CLASS.format(
        name=name, kind=kind, summary=summary, documents=documents(table), signature=signature(table, len(first)), values=values(table),
        sharing=SHARING,
    )  # fmt: skip


def write_mixed(tables: dict[str, list[dict[str, Any]]]) -> str:
    """Writes Mixed. It has PRISM's options, and AdamW's with the prefix `aux_`; options that every optimizer has apply to both."""
    shared = set.intersection(*({line["name"] for line in table} for table in tables.values())) - {"lr", "weight_decay"}
    matrices, rest = ([{**line, "default": line["mixed_default"]} for line in tables[name]] for name in ("prism", "adamw"))
    aux = [
        {**line, "name": f"aux_{line['name']}", "doc": f"{line['doc']} (AdamW)"} for line in rest if line["name"] not in shared
    ]
    by_name = {line["name"]: line for line in matrices + aux}
    first = [by_name.pop("lr"), by_name.pop("aux_lr")]
    options = first + list(by_name.values())
    text = MIXED.format(
        documents=documents(options),
        sharing=SHARING,
        signature=signature(options, 2),
        values=values(options),
        defaults=", ".join(f'"{option["name"]}": {literal(option)}' for option in options),
    )
    return text.replace("aux_lr: float =", "aux_lr: float | Tensor =")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True, help="the compiled operators")
    parser.add_argument("--version", required=True, help="of the package")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="the package's folder")
    arguments = parser.parse_args()

    torch.ops.load_library(arguments.library)
    optimizers = json.loads(torch.ops.prism.tables())
    names = sorted([one["class"] for one in optimizers.values()] + ["Mixed"])
    text = HEADER + "\n__all__ = " + json.dumps(names) + "\n"
    text += "".join(write_class(kind, one["class"], one["summary"], one["options"]) for kind, one in optimizers.items())
    text += write_mixed({kind: one["options"] for kind, one in optimizers.items()})
    (arguments.out / "optimizers.py").write_text(text)
    (arguments.out / "_build.py").write_text(
        f'"""Facts of the build."""\n\n__version__ = "{arguments.version}"\nTORCH_VERSION = "{torch.__version__}"\n'
    )


if __name__ == "__main__":
    main()
