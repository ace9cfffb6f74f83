"""Routes the parameters of a model to optimizers by ordered rules: the first match wins, no match is an error."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import GeneratorType
from typing import Any, Literal, TypeAlias, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ._library import TABLES, defaults, ops

Model: TypeAlias = nn.Module | Iterable[tuple[str, Tensor]]  # a module, or its named parameters
Heads: TypeAlias = str | Sequence[str] | None

_ANY_NUMBER = 2**63 - 1
_CONVOLUTIONS = (nn.modules.conv._ConvNd,)
_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)


@dataclasses.dataclass(frozen=True)
class Rule:
    """Sends parameters whose name matches `pattern` (a regular expression, searched) and whose shape matches to `optimizer` with `options`.

    Dimensions of size 1 are not counted. `only` adds a condition: "depthwise" is a convolution with one filter for each channel, "last matrix"
    is the last matrix of the model if nothing in the model can take its output. A `required` rule, identified by the name the user gave, must
    match something.
    """

    label: str
    optimizer: str
    pattern: str = ".*"
    min_dimensions: int = 0
    max_dimensions: int = _ANY_NUMBER
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    only: Literal["any", "depthwise", "last matrix"] = "any"
    required: str = ""


def _exactly(name: str) -> str:
    return "^" + re.sub(r"([.^$|()\[\]{}*+?\\])", r"\\\1", name) + "$"


def module_of(model: object) -> nn.Module | None:
    """Returns the module itself, or the one whose `named_parameters()` this is; None if it is unknown."""
    found = inspect.getgeneratorlocals(model).get("self") if isinstance(model, GeneratorType) else model
    return found if isinstance(found, nn.Module) else None


def _named(model: Model, frozen: Collection[Tensor] = ()) -> tuple[nn.Module | None, list[tuple[str, Tensor]]]:
    """Returns the module, if it is known, and its trainable parameters and those of `frozen` under their plain names, which a wrapped model
    has too.

    The module can be found from `model.named_parameters()`; any other list of named parameters is routed only by names and shapes.
    """
    module = module_of(model)  # must come before the generator is exhausted
    given = list(model.named_parameters() if isinstance(model, nn.Module) else model)
    for item in given:
        if not (isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[0], str)):
            raise TypeError(
                f"routing needs the names of parameters: pass the model, or model.named_parameters(), got {type(item).__name__} in place of "
                "a name and a parameter"
            )
    named = [(name, parameter) for name, parameter in given if parameter.requires_grad or parameter in frozen]
    for name, parameter in named:
        if getattr(parameter, "_fsdp_flattened", False):
            raise TypeError(
                f"routing: '{name}' is sharded by FullyShardedDataParallel, which leaves no matrix whole; use DistributedDataParallel"
            )
    return module, list(zip(ops.plain_names([name for name, _ in named]), (parameter for _, parameter in named), strict=True))


def is_groups(model: Model | Sequence[Mapping[str, Any]]) -> TypeGuard[Sequence[Mapping[str, Any]]]:
    """Returns true for parameter groups, as opposed to a model or its named parameters."""
    return isinstance(model, Sequence) and all(isinstance(group, Mapping) for group in model)


def _trainable(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, Tensor]]:
    """Yields name, owner, name within the owner, and parameter, for every use of a trainable parameter; a tied one comes more than once."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        for key, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            name = f"{prefix}.{key}" if prefix else key
            if not parameter.requires_grad:
                continue
            if isinstance(module, parametrize.ParametrizationList):  # e.g. of a weight norm: the owner is the module whose weight it computes
                owner, _, key = f".{prefix}".rpartition(".parametrizations.")
                yield name, model.get_submodule(owner.removeprefix(".")), key, parameter
            else:
                yield name, module, key, parameter


def _module_rules(model: nn.Module, named: Sequence[tuple[str, Tensor]], matrices: str, rest: str) -> list[Rule]:
    """Returns rules from the types of the modules, beyond names and shapes."""
    names = {parameter: name for name, parameter in named}
    rules: dict[str, Rule] = {}
    for _, module, key, parameter in _trainable(model):
        if parameter not in names:
            continue
        name = names[parameter]
        pattern = _exactly(name)
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):  # also for a head that is tied to it
            rules[name] = Rule("embedding", rest, pattern)
        elif isinstance(module, _NORMS) and parameter.dim() > 1:
            rules.setdefault(name, Rule("norm", rest, pattern))
        elif isinstance(module, _CONVOLUTIONS) and key == "weight" and module.groups == module.in_channels > 1:
            rules.setdefault(name, Rule("depthwise", rest, pattern))
        elif isinstance(module, _CONVOLUTIONS) and key == "weight" and (module.in_channels == 1 or parameter.dim() == 3):
            # It has one channel but is not depthwise; or it is 3-D but not a stack of matrices.
            options = {"fold": "flatten"} if parameter.dim() == 3 else {}
            rules.setdefault(name, Rule("convolution", matrices, pattern, min_dimensions=2, options=options))
        elif isinstance(module, nn.MultiheadAttention) and key == "in_proj_weight":
            rules.setdefault(name, Rule("fused projection", matrices, pattern, options={"split": (module.embed_dim,) * 3}))
    return list(rules.values())


def default_rules(model: Model, matrices: str = "prism", rest: str = "adamw", *, head: Heads = None) -> list[Rule]:
    """Returns the default rules. Everything with fewer than two dimensions, norms, output heads, embeddings (also tied ones), tables of
    positions, depthwise convolutions and the output layer go to `rest`; hidden matrices, convolutions, stacked experts and the parts of a
    fused attention projection go to `matrices`. `head` names the heads, by parameter or module, instead of the rules that guess them; `[]`
    means that there are none.

    >>> for rule in default_rules(torch.nn.Embedding(10, 4)):
    ...     print(rule.label, '->', rule.optimizer)
    embedding -> adamw
    vector -> adamw
    embedding -> adamw
    recurrence -> adamw
    depthwise -> adamw
    last layer -> adamw
    head -> adamw
    hidden matrix -> prism
    """
    return list(_rules(None, *_named(model), matrices, rest, head))


def _rules(
    rules: Sequence[Rule] | None, model: nn.Module | None, named: Sequence[tuple[str, Tensor]], matrices: str, rest: str, head: Heads
) -> Sequence[Rule]:
    """Returns the given rules, or the default ones."""
    if rules is not None:
        if head is not None:
            raise ValueError("routing: 'head' belongs to the default rules; give rules or head, not both")
        return rules
    heads = [head] if isinstance(head, str) else head
    by_name = [Rule(**line) for line in json.loads(ops.default_rules(matrices, rest, heads))]
    by_module = [] if model is None else _module_rules(model, named, matrices, rest)
    return [rule for rule in by_name if rule.required] + by_module + [rule for rule in by_name if not rule.required]


def _route(named: Sequence[tuple[str, Tensor]], rules: Sequence[Rule]) -> tuple[list[int], str]:
    lines = [{key: value for key, value in vars(rule).items() if key != "options"} for rule in rules]
    shapes = [torch.empty(p.shape, device="meta") for _, p in named]  # a DTensor has the shape of the whole
    taken, table = ops.route(shapes, [name for name, _ in named], json.dumps(lines))
    return taken, table


def routing(
    model: Model, *, matrices: str = "prism", rest: str = "adamw", rules: Sequence[Rule] | None = None, head: Heads = None
) -> str:
    """Returns the table of how `param_groups` splits a model.

    >>> print(routing(torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 8), torch.nn.Linear(8, 10))))
    parameter  shape   rule           optimizer
    0.weight   10 × 4  embedding      adamw
    1.weight   8 × 4   hidden matrix  prism
    1.bias     8       vector         adamw
    2.weight   10 × 8  last layer     adamw
    2.bias     10      vector         adamw
    adamw: 138 elements in 4 parameters
    prism: 32 elements in 1 parameter
    <BLANKLINE>
    """
    module, named = _named(model)
    return _route(named, _rules(rules, module, named, matrices, rest, head))[1]


def groups_table(groups: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> str:
    """Returns the same table for existing groups, in the order of `labels`. A parameter without a label shows its group as its rule."""
    lines: list[tuple[str, Tensor, Rule]] = []
    for index, group in enumerate(groups):
        names = group.get("param_names") or [f"parameter.{len(lines) + i}" for i in range(len(group["params"]))]
        for name, parameter in zip(names, group["params"], strict=True):
            lines.append((name, parameter, Rule(labels.get(name, f"group {index}"), group["optimizer"], _exactly(name))))
    place = {name: position for position, name in enumerate(labels)}
    lines.sort(key=lambda line: place.get(line[0], len(place)))
    return _route([(name, parameter) for name, parameter, _ in lines], [rule for *_, rule in lines])[1]


def param_groups(
    model: Model,
    lr: float | Tensor | None = None,
    aux_lr: float | Tensor | None = None,
    *,
    matrices: str = "prism",
    rest: str = "adamw",
    rules: Sequence[Rule] | None = None,
    head: Heads = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Splits a model's trainable parameters into groups for `Mixed`, matrices first.

    Args:
        model: the module to train, or its named parameters; a list that does not come directly from `model.named_parameters()` is routed
            only by names and shapes
        lr: learning rate of the matrices; by default that of their optimizer
        aux_lr: learning rate of the rest; by default that of their optimizer
        matrices: the optimizer of hidden matrices, by its lower-case name
        rest: the optimizer of embeddings, heads, norms and biases
        rules: replaces `default_rules(model, matrices, rest)`
        head: names of the output heads, parameters or modules, instead of the rules that guess them; `[]`: there are none
        options: options of `matrices` and, with the prefix `aux_`, of `rest`; those that every optimizer has (`maximize`, `skip_nonfinite`,
            `state_dtype`, `master_weights`) apply to both

    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    >>> for group in param_groups(model, lr=0.02, aux_lr=0.005, gamma=2):
    ...     print(group['optimizer'], group['lr'], group['param_names'])
    prism 0.02 ['0.weight']
    adamw 0.005 ['0.bias', '1.weight', '1.bias']
    """
    return groups_and_labels(model, matrices=matrices, rest=rest, rules=rules, head=head, lr=lr, aux_lr=aux_lr, **options)[0]


def groups_and_labels(
    model: Model,
    *,
    matrices: str = "prism",
    rest: str = "adamw",
    rules: Sequence[Rule] | None = None,
    head: Heads = None,
    only: Sequence[tuple[str, Tensor]] | None = None,
    **options: Any,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Returns the groups of `param_groups` and the label of each name's rule. `only` drops other parameters after the whole model is routed."""
    both = set.intersection(*(set(table) for table in TABLES.values())) - {"lr", "weight_decay"}
    of = {matrices: defaults(matrices, mixed=True), rest: defaults(rest, mixed=True)}
    for key, value in options.items():
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
    kept = None if only is None else {parameter for _, parameter in only}
    module, named = _named(model, kept or ())
    rules = _rules(rules, module, named, matrices, rest, head)
    groups: dict[str, dict[str, Any]] = {}
    labels = {}
    for (name, parameter), taken in zip(named, _route(named, rules)[0], strict=True):
        if kept is not None and parameter not in kept:
            continue
        rule = rules[taken]
        labels[name] = rule.label
        base = of[rule.optimizer] if rule.optimizer in of else defaults(rule.optimizer, mixed=True)
        key = json.dumps([rule.optimizer, dict(rule.options)])
        group = groups.setdefault(key, {"params": [], "param_names": [], "optimizer": rule.optimizer, **base, **rule.options})
        group["params"].append(parameter)
        group["param_names"].append(name)
    return sorted(groups.values(), key=lambda group: group["optimizer"] != matrices), labels
