"""What every optimizer of the package shares: torch's protocol over the library's engine, which owns names, buckets, state and the step."""

from __future__ import annotations

import copy
import json
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from operator import is_
from typing import Any, TypeVar

import torch
from torch import Tensor

from ._library import TABLES, Engine, defaults, ops

_NUMBERS = {optimizer: [name for name, line in table.items() if line["type"] == "number"] for optimizer, table in TABLES.items()}
_OTHERS = {optimizer: [name for name, line in table.items() if line["type"] != "number"] for optimizer, table in TABLES.items()}
_COMPILED = "prism_optim: the step is compiled already; compile without fullgraph=True, or leave optimizer.step() out of what is compiled"
_F = TypeVar("_F", bound=Callable[..., Any])


def _untraced(function: _F) -> _F:
    """torch.compile leaves this function as it is: all its work is in the library."""
    disable: Any = torch.compiler.disable
    untraced: _F = disable(function, reason=_COMPILED)
    return untraced


def _text(values: Any) -> str:
    """Options as JSON; a number may come as a numpy scalar or a tensor of one element."""
    return json.dumps(values, default=lambda value: value.item())


def _number(name: str, value: Any) -> float:
    if not hasattr(value, "__float__"):
        raise ValueError(f"option '{name}': expected number, got {_text(value)}")
    return float(value)


class _Seen:
    """What the engine was last told of a group, and the tensors of its state that it gave: parameter's place, key, view."""

    def __init__(self, group: dict[str, Any]) -> None:
        if "optimizer" not in group:
            raise ValueError("a group of param_groups has no 'optimizer'; add it with add_param_group(group)")
        self.optimizer, self.params = group["optimizer"], list(group["params"])
        self.others: list[Any] | None = None
        self.placed: dict[str, Tensor] = {}  # learning rate and γ on the GPU, where a graph may read them
        self.views: list[tuple[int, str, Tensor]] = []

    def holds(self, group: dict[str, Any]) -> bool:
        same = len(group["params"]) == len(self.params) and all(map(is_, group["params"], self.params))
        return same and group.get("optimizer") == self.optimizer


class Optimizer(torch.optim.Optimizer):
    """Base of the optimizers here: a `torch.optim.Optimizer` whose groups name their optimizer and carry its options.

    State is made when a group is added. `state[p]` holds, under the names of the fields, views of tensors stacked over equally shaped
    parameters; of a parameter that is split, `split.<k>.<field>` for each part.
    """

    kind: str | None = None  # the optimizer of groups that name none

    def __init__(self, params: Iterable[Any], options: dict[str, Any]) -> None:
        self._engine, self._seen, self._last_scale = Engine(), list[_Seen](), None
        super().__init__(params, {name: value if isinstance(value, Tensor) else copy.deepcopy(value) for name, value in options.items()})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters with options of their own, as `torch.optim.Optimizer.add_param_group` does, and makes their state.

        Keys that are no options stay in the group, unread; one that is nearly an option's name, or another optimizer's option, is an error.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, got {type(param_group).__name__}")
        group = dict(param_group)
        optimizer = group.setdefault("optimizer", self.kind)
        if optimizer is None:
            raise ValueError("a group of Mixed must name its optimizer, e.g. optimizer='prism'; param_groups(model) makes such groups")
        if self.kind not in (None, optimizer):
            raise ValueError(f"{type(self).__name__} got a group for optimizer '{optimizer}'; use Mixed for groups of several optimizers")
        usual = defaults(optimizer, mixed=self.kind is None) | (self.defaults if self.kind else {})
        ops.check_keys(optimizer, sorted(set(group) - {"params", "param_names", "optimizer"}))
        for name in TABLES[optimizer]:
            group.setdefault(name, usual[name] if isinstance(usual[name], Tensor) else copy.deepcopy(usual[name]))
        super().add_param_group(group)  # warns of duplicate parameters, of which the first stays
        added = self.param_groups[-1]
        first = sorted({parameter: place for place, parameter in reversed(list(enumerate(added["params"])))}.values())
        added |= {key: [added[key][place] for place in first] for key in ("params", "param_names") if key in added}
        try:
            Optimizer._sync(self)
        except BaseException:
            self.param_groups.pop()
            raise

    # ---- what the engine is told, and what it shows

    @torch.no_grad()
    def _sync(self) -> None:
        """Tells the engine what changed in groups and state since the last call, and shows its state in `state`."""
        groups = self.param_groups
        if len(groups) != len(self._seen) or not all(map(_Seen.holds, self._seen, groups)):
            self._tell_groups()
        for index, (group, seen) in enumerate(zip(groups, self._seen, strict=True)):
            self._tell_options(index, group, seen)
        moved = self._engine.make_state()
        for index, seen in enumerate(self._seen):
            state = [self.state[parameter] for parameter in seen.params]
            if index in moved or not all(state[place].get(key) is view for place, key, view in seen.views):
                self._show_state(index, seen, state)

    def _tell_groups(self) -> None:
        seen = [next((old for old in self._seen if old.holds(group)), None) or _Seen(group) for group in self.param_groups]
        for index, group in enumerate(self.param_groups):
            self._engine.set_group(index, group["optimizer"], group["params"], group.get("param_names", []))
            seen[index].others = None
        self._engine.resize(len(seen))
        self._seen, names = seen, self._engine.name_parameters()
        sharded: Any = sys.modules.get("torch.distributed.tensor")  # without that module there is no such parameter
        for group, some in zip(self.param_groups, names, strict=True):
            for name, parameter in zip(some, group["params"], strict=True):
                if sharded is not None and isinstance(parameter, sharded.DTensor):
                    why = "which is not supported yet; use DistributedDataParallel, or keep this parameter whole"
                    raise TypeError(f"{group['optimizer']}: '{name}' is a sharded parameter (DTensor), {why}")

    def _tell_options(self, index: int, group: dict[str, Any], seen: _Seen) -> None:
        """With `capturable` learning rate and γ are numbers on the GPU, which schedulers write into. A number put in their place is written
        to where a graph may already read it."""
        captured = [name for name in ("lr", "gamma") if name in group] if group["capturable"] and seen.params and seen.params[0].is_cuda else []
        for name in captured:
            if not (isinstance(group[name], Tensor) and group[name].is_cuda):
                place = torch.empty((), dtype=torch.float64, device=seen.params[0].device)
                group[name] = seen.placed.setdefault(name, place).fill_(_number(name, group[name]))
        numbers = {name: group[name] for name in _NUMBERS[seen.optimizer]} | {"lr": self._rate(group)}
        on_gpu = {name: numbers[name] for name in {"lr", *captured} if isinstance(numbers[name], Tensor) and numbers[name].is_cuda}
        values = [0.0 if name in on_gpu else _number(name, value) for name, value in numbers.items()]
        self._engine.set_numbers(index, values, on_gpu.get("lr"), on_gpu.get("gamma"))
        others = [group[name] for name in _OTHERS[seen.optimizer]]
        if others != seen.others:
            self._engine.set_options(index, _text(dict(zip(_OTHERS[seen.optimizer], others, strict=True))))
            seen.others = copy.deepcopy(others)

    def _show_state(self, index: int, seen: _Seen, state: list[dict[str, Any]]) -> None:
        """Makes the engine's tensors `state`. What others put there goes into them, and what was deleted starts anew."""
        old = [(place, key) for place, key, _ in seen.views]
        seen.views = list(zip(*self._engine.state(index), strict=True))
        for place in {place for place, _, _ in seen.views} - {place for place, key, _ in seen.views if key in state[place]}:
            self._engine.reset_state(index, place)
        for place, key, view in seen.views:
            if state[place].get(key, view) is not view:
                self._engine.put_state(index, place, key, view, torch.as_tensor(state[place][key]))
        for place, key in old:
            state[place].pop(key, None)
        for place, key, view in seen.views:
            state[place][key] = view

    def _rate(self, group: dict[str, Any]) -> float | Tensor:
        """The learning rate that a group has in this step."""
        rate: float | Tensor = group["lr"]
        return rate

    # ---- torch's protocol

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether GradScaler hands over its scale and what it found, in place of unscaling the gradients and waiting for the device.

        Frameworks that clip gradients refuse such optimizers, so only what needs it asks for it: steps to be captured, and float16 weights,
        whose gradients GradScaler does not unscale.
        """
        groups = self.param_groups
        return any(group["capturable"] for group in groups) or any(p.dtype is torch.float16 for group in groups for p in group["params"])

    @_untraced
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes one step. A parameter without a gradient stays as it is, and so does its state.

        Args:
            closure: computes the loss again and returns it
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._sync()
        self._last_scale = getattr(self, "grad_scale", None)
        self._engine.step(getattr(self, "found_inf", None), self._last_scale)
        return loss

    @property
    def skipped(self) -> Tensor:
        """How many steps a non-finite gradient has cancelled (`skip_nonfinite`)."""
        skipped: Tensor = self._engine.skipped()
        return skipped

    def state_dict(self) -> dict[str, Any]:
        """The state in torch's layout; where a group has `skip_nonfinite`, with `skipped`, the number of cancelled steps.

        `param_names` are without what wrappers put into them (`module.`, `_orig_mod.`), so that state moves between a model and a wrapped one.
        """
        self._sync()
        everything = self.state
        self.state = defaultdict(dict, {parameter: everything[parameter] for group in self.param_groups for parameter in group["params"]})
        try:
            result = super().state_dict()
        finally:
            self.state = everything
        guarded = any(group["skip_nonfinite"] for group in self.param_groups)
        for group, names in zip(result["param_groups"], self._engine.name_parameters(), strict=True):
            group |= {"param_names": names} if "param_names" in group else {}
            group |= {"skipped": self.skipped.clone()} if guarded else {}  # here torch.distributed.checkpoint keeps it
        return result | ({"skipped": self.skipped.clone()} if guarded else {})

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what `state_dict` gave, options included; options that it lacks, from before they existed, take their defaults.

        Parameters are matched by name where both sides have `param_names`, else by position; torch.distributed.checkpoint has already arranged
        them. Values are copied into the stacked state and cast to its type. What does not match is named, and then nothing is changed.
        """
        state_dict = state_dict.copy()
        for pre_hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = pre_hook(self, state_dict) or state_dict
        self._sync()
        saved = copy.deepcopy(state_dict["param_groups"])
        in_groups = [group.pop("skipped") for group in saved if "skipped" in group]
        arranged = any(isinstance(number, str) for group in saved for number in group["params"])
        by_name = not arranged and all("param_names" in group for group in [*self.param_groups, *saved])
        groups, keys, tensors = [], [], []
        for index, group in enumerate(saved):
            optimizer = group.get("optimizer")
            names = ops.plain_names(group["param_names"]) if by_name else len(group["params"])
            options = {name: value for name, value in group.items() if name in TABLES.get(optimizer, ())}
            group |= defaults(optimizer, mixed=self.kind is None) | options if optimizer in TABLES else {}
            groups.append({"optimizer": optimizer, "options": {name: group[name] for name in TABLES.get(optimizer, ())}, "parameters": names})
            for place, number in enumerate(group["params"]):
                for key, value in state_dict["state"].get(number, {}).items():
                    if isinstance(value, (Tensor, int, float)):
                        keys.append(f"{index}.{place}.{key}")
                        tensors.append(value if isinstance(value, Tensor) else torch.tensor(float(value)))
        sources = self._engine.restore(_text(groups), keys, tensors, state_dict.get("skipped", in_groups[0] if in_groups else None))
        loaded = []
        for group, seen, source in zip(self.param_groups, self._seen, sources, strict=True):
            own = {key: group[key] for key in ("params", "param_names") if key in group}
            fresh = {key: value for key, value in saved[source].items() if key not in ("params", "param_names")}
            loaded.append(fresh | {name: float(fresh[name]) for name in seen.placed} | own)
        self._warn_of_changes(loaded)
        self.param_groups[:], self.state = loaded, defaultdict(dict)
        for index, seen in enumerate(self._seen):
            seen.others, seen.views = None, list(zip(*self._engine.state(index), strict=True))
            for place, key, view in seen.views:
                self.state[seen.params[place]][key] = view
        self._sync()
        for post_hook in self._optimizer_load_state_dict_post_hooks.values():
            post_hook(self)

    def _warn_of_changes(self, loaded: list[dict[str, Any]]) -> None:
        """Says which kinds of state that were asked for here a loaded checkpoint does not have."""
        changes = set()
        for group, after in zip(self.param_groups, loaded, strict=True):
            usual = defaults(group["optimizer"], mixed=self.kind is None)
            for name in ("state_dtype", "master_weights"):
                if group[name] not in (after[name], usual[name]):
                    changes.add(f"{name}={after[name]!r} in place of {group[name]!r}")
        if changes:
            warnings.warn(f"load_state_dict: options follow the checkpoint: {', '.join(sorted(changes))}", stacklevel=4)

    def __getstate__(self) -> dict[str, Any]:
        self._sync()
        return super().__getstate__() | {"_skipped": self.skipped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._engine, self._seen, self._last_scale = Engine(), [], None
        skipped = state.pop("_skipped", None)
        super().__setstate__(state)
        self._sync()
        if skipped is not None:
            self.skipped.copy_(skipped)
