"""The parts of `Mixed`: routing of groups, tied rates, and one name for the momentum of all groups."""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch import Tensor

from ._library import TABLES, defaults, ops
from .base import Optimizer
from .routing import Heads, Model, groups_and_labels, groups_table, is_groups, module_of

_MATRICES, _REST = "prism", "adamw"


def _cycles_first_beta(optimizer: str | None) -> bool:
    """Returns true if `momentum` is another name for the first β of this optimizer, for schedulers that write it into every group."""
    return optimizer in TABLES and "betas" in TABLES[optimizer] and "momentum" not in TABLES[optimizer]


def _names_and_parameters(group: Mapping[str, Any]) -> list[tuple[str | None, Tensor]]:
    """Returns the parameters of a group, which torch accepts as one, several, or pairs of name and parameter."""
    params = group["params"]
    if isinstance(params, set):
        raise TypeError("optimizer parameters need to be organized in ordered collections, but a set has no order; use a list instead")
    given = [params] if isinstance(params, Tensor) else list(params)
    names = group.get("param_names", [None] * len(given))
    pairs = [item if isinstance(item, tuple) else (name, item) for name, item in zip(names, given, strict=True)]
    for _, parameter in pairs:
        if not isinstance(parameter, Tensor):
            raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(parameter).__name__}")
    if len({name is None for name, _ in pairs}) > 1:
        raise ValueError("all optimizer params should be with/without names. Some param names are missing")
    return pairs


def _present(groups: Sequence[Mapping[str, Any]]) -> list[tuple[str, Tensor]]:
    """Returns the parameters of all groups, with their names or numbers."""
    pairs: list[tuple[str, Tensor]] = []
    for group in groups:
        names = group.get("param_names") or [f"parameter.{len(pairs) + i}" for i in range(len(group["params"]))]
        pairs += zip(names, group["params"], strict=True)
    return pairs


class RoutedOptimizer(Optimizer):
    """The base class of `Mixed`, whose signature is generated from the option tables."""

    def __init__(
        self,
        model: Model | Sequence[Mapping[str, Any]],
        options: dict[str, Any],
        unchanged: Mapping[str, Any],
        head: Heads,
        tie_rates: bool,
        own: Any,
        comm_dtype: str | None,
    ) -> None:
        self._options: dict[str, Any] | None = options  # of groups that name no optimizer; None: every group must name its own
        self._head = head
        self._tied = tie_rates
        self._labels: dict[str, str] = {}
        self._agreed: list[tuple[dict[str, Any], float]] = []
        module = module_of(model)
        self._model = weakref.ref(module) if module is not None else None
        self.param_groups: list[dict[str, Any]] = []
        lr = options["lr"]
        if not is_groups(model):
            groups, self._labels = groups_and_labels(cast(Model, model), head=head, **options)
        elif any("optimizer" in group for group in model):
            changed = [name for name, value in options.items() if value != unchanged[name]] + ["head"] * (head is not None)
            if changed:
                raise ValueError(f"Mixed: '{changed[0]}' must be given to param_groups, because the groups hold the options")
            self._options = None
            groups = [dict(group) for group in model]
            lr = groups[0].get("lr", lr)
        else:
            groups = self._split(model)
        super().__init__(groups, {"lr": lr}, own, comm_dtype)
        if all("momentum" in group for group in self.param_groups):
            self.defaults["momentum"] = self.param_groups[0]["momentum"]  # OneCycleLR and CyclicLR read it here

    def routing(self) -> str:
        """Returns the table of parameters and their optimizers. With `tie_rates` its last line gives the ratios of the rates."""
        table = groups_table(self.param_groups, self._labels)
        if self._tied:
            ratios = ", ".join(f"{group['optimizer']} {group.get('lr_ratio', 1.0):g}" for group in self.param_groups)
            table += f"tied rates: each group trains at lr times its lr_ratio ({ratios})\n"
        return table

    # ---- groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters. If the group names no optimizer, they are routed by their names in the model, or else by shape.

        In such a group an option applies to each of the two optimizers that has it; with the prefix `aux_` it applies only to AdamW. Its `lr`
        applies to the optimizer of the first group; the rate of the other keeps the ratio of `lr` to `aux_lr` from the construction of `Mixed`.
        """
        if isinstance(param_group, dict) and "optimizer" not in param_group and self._options is not None:
            for group in self._split([param_group]):
                self._add(group)
        else:
            self._add(param_group)

    def _add(self, group: dict[str, Any]) -> None:
        optimizer = group.get("optimizer") if isinstance(group, dict) else None
        if optimizer in TABLES:  # otherwise the base class raises the error
            group = dict(group)
            if "lr_ratio" in group and not self._tied:
                raise ValueError("Mixed: a group has 'lr_ratio', which only tied rates use; give tie_rates=True or leave it out")
            if self._tied and "lr_ratio" not in group:
                group |= self._tied_rate(group.get("lr", defaults(optimizer, mixed=True)["lr"]))
            if _cycles_first_beta(optimizer) and "momentum" in group:
                betas = group.get("betas", defaults(optimizer, mixed=True)["betas"])
                group["betas"] = (group.pop("momentum"), *betas[1:])
        super().add_param_group(group)
        added = self.param_groups[-1]
        if _cycles_first_beta(optimizer):
            added["momentum"] = added["betas"][0]
        elif "momentum" not in TABLES[added["optimizer"]]:
            added.pop("momentum", None)  # of `defaults`
        self._agree_on_momentum()

    def _split(self, groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Splits groups that name no optimizer by the optimizers of their parameters."""
        model = self._model() if self._model is not None else None
        in_model: dict[Tensor, str] = {}
        if model is not None:
            in_model = dict(zip(model.parameters(), ops.plain_names([name for name, _ in model.named_parameters()]), strict=True))
        present = _present(self.param_groups)
        given = [[(name or in_model.get(p), p) for name, p in _names_and_parameters(group)] for group in groups]
        if {parameter for _, parameter in present} & {parameter for some in given for _, parameter in some}:
            raise ValueError("some parameters appear in more than one parameter group")
        nameless = sum(name is None for some in given for name, _ in some)
        if nameless:
            warnings.warn(
                f"Mixed: {nameless} parameters have no names, so they are routed by shape: matrices, including embeddings and output heads, go "
                f"to {_MATRICES}, the rest to {_REST}; pass the model or model.named_parameters(), or name the optimizer of each group",
                stacklevel=4,
            )
        number = itertools.count(len(present))
        pairs = [[(name or f"parameter.{i}", parameter) for (name, parameter), i in zip(some, number)] for some in given]
        everything: Model = [*present, *itertools.chain(*pairs)]
        if model is not None and all(parameter in in_model for some in given for _, parameter in some):
            everything = model
        named = any("param_names" in group for group in self.param_groups) if self.param_groups else not nameless
        result = []
        for group, some in zip(groups, pairs, strict=True):
            parts, labels = groups_and_labels(everything, head=self._head, only=some, **(self._options or {}))
            if named:
                self._labels |= labels
            for part in parts:
                own = part | self._own_keys(group, part["optimizer"])
                result.append(own if named else {key: value for key, value in own.items() if key != "param_names"})
        return result

    def _own_keys(self, group: Mapping[str, Any], optimizer: str) -> dict[str, Any]:
        """Returns the keys of a routed group for one of the two optimizers, and those that are options of neither."""
        options = TABLES[_MATRICES].keys() | TABLES[_REST].keys()
        aux = {key.removeprefix("aux_"): value for key, value in group.items() if key.startswith("aux_") and key[4:] in TABLES[_REST]}
        others = {"params", "param_names"} | {f"aux_{name}" for name in aux} | (options - TABLES[optimizer].keys())
        own = {key: value for key, value in group.items() if key not in others}
        first = self.param_groups[0]["optimizer"] if self.param_groups else _MATRICES
        if "lr" in own and "lr" not in aux and optimizer != first:
            own["lr"] = own["lr"] * self._ratio(optimizer, first)
        return own | (aux if optimizer == _REST else {})

    def _ratio(self, optimizer: str, first: str) -> float:
        """Returns the ratio of the two optimizers' rates at the construction of `Mixed`."""
        options = self._options or {}
        rates = {_MATRICES: options["lr"], _REST: options["aux_lr"]}
        if not rates[first] > 0:
            raise ValueError("Mixed: a group with 'lr' needs 'aux_lr' too, because Mixed was created with a rate of 0, which gives no ratio")
        return float(rates[optimizer] / rates[first])

    # ---- rates and momentum that are written into every group

    def _tied_rate(self, rate: float | Tensor) -> dict[str, Any]:
        first = self.param_groups[0]["lr"] if self.param_groups else rate
        if not first > 0:
            raise ValueError(f"Mixed: tie_rates needs a first rate above 0 to compare the others with, got {float(first):g}")
        return {"lr": first, "lr_ratio": float(rate / first)}

    def _rate(self, group: dict[str, Any]) -> float | Tensor:
        rate: float | Tensor = group["lr"] * group.get("lr_ratio", 1.0) if self._tied else group["lr"]
        return rate

    def _agree_on_momentum(self) -> None:
        """Makes `momentum` and the first of `betas` equal in groups that have both: the one that was changed since the last call wins."""
        agreed = []
        for group in self.param_groups:
            if not _cycles_first_beta(group.get("optimizer")) or "betas" not in group:
                continue
            beta, *others = group["betas"]
            momentum = group.get("momentum", beta)
            last = next((value for known, value in self._agreed if known is group), beta)
            if beta not in (last, momentum) and momentum != last:
                raise ValueError(
                    f"{group['optimizer']}: 'momentum' is the first of 'betas' in a group of Mixed, but they were set to {momentum} and {beta}"
                )
            value = beta if momentum == last else momentum
            group |= {"momentum": value, "betas": (value, *others)}
            agreed.append((group, value))
        self._agreed = agreed

    def _sync(self) -> None:
        self._agree_on_momentum()
        super()._sync()

    # ---- saving and loading

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the result of `state_dict`; see `Optimizer.load_state_dict`. Rates must be tied on both sides or on neither."""
        groups = state_dict.get("param_groups", [])
        saved = any("lr_ratio" in group for group in groups)
        if saved != self._tied and any("optimizer" in group for group in groups):
            raise ValueError(f"load_state_dict: the state was saved with tie_rates={saved}; create Mixed with tie_rates={saved} to load it")
        super().load_state_dict(state_dict)
        self._agree_on_momentum()

    def __getstate__(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("_options", "_head", "_tied", "_labels")}
        return super().__getstate__() | own | {"_agreed": [], "_model": None}
