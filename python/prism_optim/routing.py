"""Which optimizer takes which parameter of a model: ordered rules, the first match wins, no match is an error."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from ._library import TABLES, defaults, ops

_ANY_NUMBER = 2**63 - 1
_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)


@dataclasses.dataclass(frozen=True)
class Rule:
    """Parameters whose name matches `pattern` (a regular expression, searched) and whose shape fits go to `optimizer` with `options`.

    Dimensions are counted without sizes of 1.
    """

    label: str
    optimizer: str
    pattern: str = ".*"
    min_dimensions: int = 0
    max_dimensions: int = _ANY_NUMBER
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _exactly(name: str) -> str:
    return "^" + re.sub(r"([.^$|()\[\]{}*+?\\])", r"\\\1", name) + "$"


def _trainable(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, Tensor]]:
    """Name, owner, name within the owner, and parameter, for every use of a trainable parameter; a tied one comes more than once."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        for key, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            if parameter.requires_grad:
                yield f"{prefix}.{key}" if prefix else key, module, key, parameter


def _module_rules(model: nn.Module, matrices: str, rest: str) -> list[Rule]:
    """What the types of the modules say beyond names and shapes."""
    names = {parameter: name for name, parameter in _named(model)}
    rules: dict[str, Rule] = {}
    for _, module, key, parameter in _trainable(model):
        name = names[parameter]
        pattern = _exactly(name)
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):  # also for a head that is tied to it
            rules[name] = Rule("embedding", rest, pattern)
        elif isinstance(module, _NORMS) and parameter.dim() > 1:
            rules.setdefault(name, Rule("norm", rest, pattern))
        elif isinstance(module, (nn.Conv1d, nn.ConvTranspose1d)) and key == "weight":  # 3-D, but no stack of matrices
            rules.setdefault(name, Rule("convolution", matrices, pattern, min_dimensions=2, options={"fold": "flatten"}))
        elif isinstance(module, nn.MultiheadAttention) and key == "in_proj_weight":
            rules.setdefault(name, Rule("fused projection", matrices, pattern, options={"split": (module.embed_dim,) * 3}))
    return list(rules.values())


def default_rules(model: nn.Module, matrices: str = "prism", rest: str = "adamw") -> list[Rule]:
    """Embeddings (also tied ones), output heads, norms and everything with fewer than two dimensions go to `rest`; hidden matrices,
    convolutions, stacked experts and the parts of a fused attention projection go to `matrices`.

    >>> for rule in default_rules(torch.nn.Embedding(10, 4)):
    ...     print(rule.label, '->', rule.optimizer)
    embedding -> adamw
    embedding -> adamw
    head -> adamw
    vector -> adamw
    hidden matrix -> prism
    """
    return _module_rules(model, matrices, rest) + [Rule(**line) for line in json.loads(ops.default_rules(matrices, rest))]


def _route(named: Sequence[tuple[str, Tensor]], rules: Sequence[Rule]) -> tuple[list[int], str]:
    lines = [{key: value for key, value in vars(rule).items() if key != "options"} for rule in rules]
    taken, table = ops.route([p.detach() for _, p in named], [name for name, _ in named], json.dumps(lines))
    return taken, table


def _named(model: nn.Module) -> list[tuple[str, Tensor]]:
    """The trainable parameters under their plain names, which are the same for a model and a wrapped model."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    for name, parameter in named:
        if getattr(parameter, "_fsdp_flattened", False):
            raise TypeError(
                f"routing: '{name}' is sharded by FullyShardedDataParallel, which leaves no matrix whole; use DistributedDataParallel"
            )
    return list(zip(ops.plain_names([name for name, _ in named]), (parameter for _, parameter in named), strict=True))


def routing(model: nn.Module, *, matrices: str = "prism", rest: str = "adamw", rules: Sequence[Rule] | None = None) -> str:
    """The table of what `param_groups` does with a model.

    >>> print(routing(torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 8))))
    parameter  shape   rule           optimizer
    0.weight   10 × 4  embedding      adamw
    1.weight   8 × 4   hidden matrix  prism
    1.bias     8       vector         adamw
    adamw: 48 elements in 2 parameters
    prism: 32 elements in 1 parameter
    <BLANKLINE>
    """
    return _route(_named(model), default_rules(model, matrices, rest) if rules is None else rules)[1]


def groups_table(groups: Sequence[Mapping[str, Any]]) -> str:
    """The same table for groups that exist: each group is a rule."""
    named: list[tuple[str, Tensor]] = []
    rules = []
    for index, group in enumerate(groups):
        names = group.get("param_names") or [f"parameter.{len(named) + i}" for i in range(len(group["params"]))]
        for name, parameter in zip(names, group["params"], strict=True):
            named.append((name, parameter))
            rules.append(Rule(f"group {index}", group["optimizer"], _exactly(name)))
    return _route(named, rules)[1]


def param_groups(
    model: nn.Module,
    lr: float | Tensor | None = None,
    aux_lr: float | Tensor | None = None,
    *,
    matrices: str = "prism",
    rest: str = "adamw",
    rules: Sequence[Rule] | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Splits a model's trainable parameters into groups for `Mixed`, matrices first.

    Args:
        model: the module to train
        lr: learning rate of the matrices; left out: the default of their optimizer
        aux_lr: learning rate of the rest; left out: the default of theirs
        matrices: the optimizer of hidden matrices, by its lower-case name
        rest: the optimizer of embeddings, heads, norms and biases
        rules: replaces `default_rules(model, matrices, rest)`
        options: options of `matrices`, and with `aux_` before their names, of `rest`; those that every optimizer has (`maximize`,
            `skip_nonfinite`, `state_dtype`, `master_weights`) go to both

    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    >>> for group in param_groups(model, lr=0.02, aux_lr=0.005, gamma=2):
    ...     print(group['optimizer'], group['lr'], group['param_names'])
    prism 0.02 ['0.weight', '1.weight']
    adamw 0.005 ['0.bias', '1.bias']
    """
    both = set.intersection(*(set(table) for table in TABLES.values())) - {"lr", "weight_decay"}
    given = {"lr": lr, "aux_lr": aux_lr} | options
    of = {matrices: defaults(matrices, mixed=True), rest: defaults(rest, mixed=True)}
    for key, value in given.items():
        if value is None:
            continue
        aux = key.startswith("aux_")
        name = key.removeprefix("aux_")
        targets = [matrices, rest] if key in both else [rest if aux else matrices]
        if name not in of[targets[0]] or (aux and name in both):
            takers = f"the options of {matrices} ({', '.join(defaults(matrices))}), and aux_ with those of {rest}"
            raise ValueError(f"param_groups: unknown option '{key}'; expected {takers}")
        for target in targets:
            of[target][name] = value
    named = _named(model)
    if rules is None:
        rules = default_rules(model, matrices, rest)
    groups: dict[str, dict[str, Any]] = {}
    for (name, parameter), taken in zip(named, _route(named, rules)[0], strict=True):
        rule = rules[taken]
        base = of[rule.optimizer] if rule.optimizer in of else defaults(rule.optimizer, mixed=True)
        key = json.dumps([rule.optimizer, dict(rule.options)])
        group = groups.setdefault(key, {"params": [], "param_names": [], "optimizer": rule.optimizer, **base, **rule.options})
        group["params"].append(parameter)
        group["param_names"].append(name)
    return sorted(groups.values(), key=lambda group: group["optimizer"] != matrices)
