"""What every optimizer of the package shares: parameter groups, state in torch's layout over stacked tensors, saving and loading."""

from __future__ import annotations

import copy
import dataclasses
import difflib
import inspect
import json
import math
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor

from ._library import TABLES, defaults, ops

# Names of options, ours and those of torch's optimizers. In a group whose optimizer has no such option they are mistakes.
_ANY_OPTION = frozenset(name for table in TABLES.values() for name in table) | frozenset(
    name
    for cls in (torch.optim.SGD, torch.optim.AdamW, torch.optim.Muon, torch.optim.Adagrad, torch.optim.RMSprop)
    for name in inspect.signature(cls).parameters
)


_F = TypeVar("_F", bound=Callable[..., Any])


def _untraced(function: _F) -> _F:
    """torch.compile leaves this function as it is: all its work is in the operators."""
    reason = "prism_optim: the step is compiled already; compile without fullgraph=True, or leave optimizer.step() out of what is compiled"
    disable: Any = torch.compiler.disable
    untraced: _F = disable(function, reason=reason)
    return untraced


@dataclasses.dataclass
class _Stacks:
    """The state of one group: the stacked tensors the engine works on, and the views of them that are `optimizer.state`."""

    layout: str
    stacks: list[Tensor]
    views: list[tuple[Tensor, str, Tensor]]  # parameter, key, view
    kinds: list[tuple[torch.dtype, torch.device]]  # of the parameters when the state was made


def _kinds(group: dict[str, Any]) -> list[tuple[torch.dtype, torch.device]]:
    return [(p.dtype, p.device) for p in group["params"]]


def _plain(value: Any) -> Any:
    """A number that came as a numpy scalar or a tensor of one element."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"expected a number, a word or a list, got {type(value).__name__}")


_SCALARS = ("lr", "gamma")  # what `capturable` keeps on the device


def _device_gamma(group: dict[str, Any]) -> Tensor | None:
    """γ as a number on the GPU, where `capturable` has put it."""
    gamma = group.get("gamma")
    on_gpu = isinstance(gamma, Tensor) and gamma.is_cuda and group["capturable"] and all(p.is_cuda for p in group["params"])
    return gamma if on_gpu else None


def _options_text(group: dict[str, Any], *, with_lr: bool = False) -> str:
    """The options of a group as JSON. The learning rate travels as a tensor of its own at each step, and so does γ of a captured one."""
    optimizer = group["optimizer"]
    apart = () if with_lr else ("lr",) if _device_gamma(group) is None else ("lr", "gamma")
    values = {name: group[name] for name in defaults(optimizer) if name not in apart}
    try:
        return json.dumps(values, default=_plain, allow_nan=False)
    except (ValueError, TypeError):
        for name, value in values.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{optimizer}: {name} must be a finite number, got {value}") from None
        raise


def _refuse_mistaken_keys(optimizer: str, group: dict[str, Any]) -> None:
    """A group may carry keys of its owner's (`lr_scale`, `name`); one that reads like an option was meant as one."""
    known = defaults(optimizer)
    for key in sorted(set(group) - set(known) - {"params", "param_names", "optimizer"}):
        for near in difflib.get_close_matches(key, sorted(_ANY_OPTION | set(known)), 1, cutoff=0.82):
            meant = f"did you mean '{near}'?" if near in known else f"'{near}' is an option of other optimizers."
            raise ValueError(f"{optimizer}: unknown option '{key}' in a parameter group; {meant} The options are {', '.join(known)}")


def _own(value: Any) -> Any:
    """A copy of an option's value; a learning rate that is a tensor stays that tensor."""
    return value if isinstance(value, Tensor) else copy.deepcopy(value)


def _refuse_sharded(name: str, parameter: Tensor, optimizer: str) -> None:
    sharded = sys.modules.get("torch.distributed.tensor")  # without that module there is no such parameter
    if sharded is not None and isinstance(parameter, sharded.DTensor):
        raise TypeError(
            f"{optimizer}: '{name}' is a sharded parameter (DTensor), which is not supported yet; "
            "use DistributedDataParallel, or keep this parameter whole"
        )


class Optimizer(torch.optim.Optimizer):
    """Base of the optimizers here: a `torch.optim.Optimizer` whose groups name their optimizer and carry its options.

    State is made when a group is added. `state[p]` holds, under the names of the fields, views of tensors stacked over equally shaped
    parameters; of a parameter that is split, `split.<k>.<field>` for each part.
    """

    kind: str | None = None  # the optimizer of groups that name none
    def __init__(self, params: Iterable[Any], options: dict[str, Any]) -> None:
        self._stacks: list[_Stacks] = []
        self._skipped: Tensor | None = None
        self._last_scale: Tensor | None = None
        self._workspace: Tensor | None = None
        self._scalars: list[dict[str, Tensor]] = []
        super().__init__(params, {name: _own(value) for name, value in options.items()})

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether GradScaler hands over its scale and what it found, in place of unscaling the gradients and waiting for the device.

        Frameworks that clip gradients refuse such optimizers, so only what needs it asks for it: steps to be captured, and float16 weights,
        whose gradients GradScaler does not unscale.
        """
        groups = self.param_groups
        return any(group["capturable"] for group in groups) or any(p.dtype is torch.float16 for group in groups for p in group["params"])

    # ---- groups

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
        _refuse_mistaken_keys(optimizer, group)
        for name, default in defaults(optimizer, mixed=self.kind is None).items():
            group.setdefault(name, _own(self.defaults.get(name, default) if self.kind else default))
        ops.check(optimizer, _options_text(group, with_lr=True))
        super().add_param_group(group)  # warns of duplicate parameters
        _drop_duplicates(self.param_groups[-1])
        try:
            self._check_names()
            self._stacks.append(self._fresh(len(self.param_groups) - 1))
            self._scalars.append({})
        except BaseException:
            self.param_groups.pop()
            raise
        self._install(self._stacks[-1])
        self._place_scalars()

    def _names(self, index: int) -> list[str]:
        return _plain_names(self.param_groups)[index]

    def _check_names(self) -> None:
        names = _plain_names(self.param_groups)
        for name, count in Counter(name for some in names for name in some).items():
            if count > 1:
                raise ValueError(f"two parameters are named '{name}'; names must be unique")
        group = self.param_groups[-1]
        for name, parameter in zip(names[-1], group["params"], strict=True):
            _refuse_sharded(name, parameter, group["optimizer"])

    # ---- state

    def _fresh(self, index: int, group: dict[str, Any] | None = None) -> _Stacks:
        """New state for a group; `group` stands in for the one held, with the same parameters."""
        group = group or self.param_groups[index]
        parameters = [p.detach() for p in group["params"]]
        stacks, layout = ops.make_state(parameters, self._names(index), group["optimizer"], _options_text(group))
        views = []
        stack = iter(stacks)
        for bucket in json.loads(layout)["buckets"]:
            for field in bucket["fields"]:
                for part_of_stack, (parameter, part) in zip(next(stack), bucket["entries"], strict=True):
                    key = field if part < 0 else f"split.{part}.{field}"
                    views.append((group["params"][parameter], key, part_of_stack))
        return _Stacks(layout, list(stacks), views, _kinds(group))

    def _install(self, fresh: _Stacks, old: _Stacks | None = None) -> None:
        """Makes these views the optimizer's state; what others keep there stays."""
        for parameter, key, _ in old.views if old else ():
            self.state[parameter].pop(key, None)
        for parameter, key, view in fresh.views:
            self.state[parameter][key] = view

    def _sync(self) -> None:
        """Follows parameters that were moved or cast, and state that was replaced, since the last call."""
        for index, (group, stacks) in enumerate(zip(self.param_groups, self._stacks, strict=True)):
            state = self.state
            if stacks.kinds == _kinds(group) and all(state[p].get(key) is view for p, key, view in stacks.views):
                continue
            fresh = self._fresh(index)
            names = dict(zip(group["params"], self._names(index), strict=True))
            for parameter, key, view in fresh.views:
                present = state[parameter].get(key)
                if present is None:  # a field that only the new type has keeps its first value
                    continue
                _check_shape(key, names[parameter], present, view)
                view.copy_(present)
            self._install(fresh, stacks)
            self._stacks[index] = fresh

    # ---- the step

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
        gradients = self._gradients()
        self._check_capture(gradients)
        self._place_scalars()
        found_inf: Tensor | None = getattr(self, "found_inf", None)
        grad_scale: Tensor | None = getattr(self, "grad_scale", None)
        self._last_scale = grad_scale
        apply = self._apply_flag(gradients, found_inf)
        if apply is not None and apply.device.type == "cpu":  # nothing to wait for: decide here
            if not apply.item():
                return loss
            apply = None
        for group, stacks, some in zip(self.param_groups, self._stacks, gradients, strict=True):
            lr = self._rate(group)
            if not isinstance(lr, Tensor):
                lr = torch.tensor(lr, dtype=torch.float64)
            optimizer, options = group["optimizer"], _options_text(group)
            scalars = (lr, _device_gamma(group), apply, grad_scale)
            texts = (stacks.layout, optimizer, options)
            needed = ops.step_(group["params"], some, stacks.stacks, *scalars, self._workspace, *texts)
            if needed > 0:  # scratch memory of the kernels, from the first step on that needs it
                self._workspace = torch.empty(needed, dtype=torch.uint8, device=stacks.stacks[0].device)
                ops.step_(group["params"], some, stacks.stacks, *scalars, self._workspace, *texts)
        return loss

    def _rate(self, group: dict[str, Any]) -> float | Tensor:
        """The learning rate that a group has in this step."""
        rate: float | Tensor = group["lr"]
        return rate

    def _gradients(self) -> list[list[Tensor | None]]:
        """The gradients of each group. All are checked before any weight changes."""
        gradients = [[p.grad for p in group["params"]] for group in self.param_groups]
        for index, some in enumerate(gradients):
            for position, gradient in enumerate(some):
                if gradient is not None and gradient.layout is not torch.strided:
                    raise RuntimeError(
                        f"{self.param_groups[index]['optimizer']}: the gradient of '{self._names(index)[position]}' must be dense, "
                        f"got {gradient.layout}; make it dense first"
                    )
        return gradients

    def _check_capture(self, gradients: list[list[Tensor | None]]) -> None:
        """Refuses to be captured into a graph that would not be the step."""
        on_gpu = any(p.is_cuda for group in self.param_groups for p in group["params"])
        if not on_gpu or not torch.cuda.is_current_stream_capturing():
            return
        for index, (group, some) in enumerate(zip(self.param_groups, gradients, strict=True)):
            if not group["capturable"]:
                raise RuntimeError(
                    f"{group['optimizer']}: a step can be captured into a graph with capturable=True, "
                    "without which its learning rate would stay as it is now"
                )
            for name, gradient in zip(self._names(index), some, strict=True):
                if gradient is None:
                    raise RuntimeError(f"{group['optimizer']}: '{name}' has no gradient; a graph captured now would never update it")

    def _place_scalars(self) -> None:
        """Where `capturable` is set, makes learning rate and γ numbers on the GPU, which schedulers then write into.

        A number put into the group in their place is written to where a graph may already read it.
        """
        for group, placed in zip(self.param_groups, self._scalars, strict=True):
            device = group["params"][0].device if group["params"] else torch.device("cpu")
            if not group["capturable"] or device.type != "cuda":
                continue
            for name in _SCALARS:
                if name not in group or (isinstance(group[name], Tensor) and group[name].device == device):
                    continue
                if name in placed and placed[name].device == device:
                    placed[name].fill_(group[name])
                else:
                    placed[name] = torch.as_tensor(group[name], dtype=torch.float64).to(device)
                group[name] = placed[name]

    def _written_scalars(self, index: int, loaded: dict[str, Any]) -> dict[str, Tensor]:
        """The numbers on the GPU that a graph may read, with the values of a group that is being loaded."""
        present = {name: self.param_groups[index].get(name) for name in _SCALARS}
        on_gpu = {name: value for name, value in present.items() if isinstance(value, Tensor) and value.is_cuda and name in loaded}
        for name, value in on_gpu.items():
            value.copy_(torch.as_tensor(loaded[name]))
        return on_gpu

    def _apply_flag(self, gradients: list[list[Tensor | None]], found_inf: Tensor | None) -> Tensor | None:
        """A boolean on the device: whether this step may change anything; None where nobody asks."""
        apply = None if found_inf is None else found_inf == 0
        if any(group["skip_nonfinite"] for group in self.param_groups):
            present = [g for some in gradients for g in some if g is not None]
            finite = ops.all_finite(present)
            if self._skipped is None:  # made there: bringing it would wait for the device
                self._skipped = torch.zeros((), dtype=torch.int64, device=finite.device)
            self._skipped = self._skipped.to(finite.device)
            self._skipped += finite.logical_not()  # in place: a graph counts on
            apply = finite if apply is None else finite & apply.to(finite.device)
        return apply

    @property
    def skipped(self) -> Tensor:
        """How many steps a non-finite gradient has cancelled (`skip_nonfinite`)."""
        return torch.zeros((), dtype=torch.int64) if self._skipped is None else self._skipped

    # ---- saving and loading

    def state_dict(self) -> dict[str, Any]:
        """The state in torch's layout; with `skipped`, the number of cancelled steps, where a group has `skip_nonfinite`.

        `param_names` are without what wrappers put into them (`module.`, `_orig_mod.`), so that state moves between a model and a wrapped one.
        """
        self._sync()
        result = super().state_dict()
        for group, names in zip(result["param_groups"], _plain_names(self.param_groups), strict=True):
            if "param_names" in group:
                group["param_names"] = names
        if any(group["skip_nonfinite"] for group in self.param_groups):
            result["skipped"] = self.skipped.clone()
        return result

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what `state_dict` gave, options included; options that it lacks, from before they existed, take their defaults.

        Parameters are matched by name where both sides have `param_names`, else by position; torch.distributed.checkpoint has already arranged
        them. Values are copied into the stacked state and cast to its type. What does not match is named, and then nothing is changed.
        """
        state_dict = state_dict.copy()
        for pre_hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = pre_hook(self, state_dict) or state_dict
        saved_groups = copy.deepcopy(state_dict["param_groups"])
        loaded = []
        for index, (source, saved_ids) in enumerate(_matched(self, saved_groups)):
            group = {key: value for key, value in source.items() if key not in ("params", "param_names")}
            group |= {key: value for key, value in self.param_groups[index].items() if key in ("params", "param_names")}
            group = defaults(group["optimizer"], mixed=self.kind is None) | group
            ops.check(group["optimizer"], _options_text(group, with_lr=True))
            group |= self._written_scalars(index, group)
            fresh = self._fresh(index, group)
            values = {p: state_dict["state"].get(i, {}) for p, i in zip(group["params"], saved_ids, strict=True)}
            names = dict(zip(group["params"], self._names(index), strict=True))
            for parameter, key, view in fresh.views:
                name = names[parameter]
                if key not in values[parameter]:
                    raise ValueError(f"load_state_dict: the saved state of '{name}' has no '{key}'")
                value = values[parameter][key]
                value = torch.tensor(value) if isinstance(value, (int, float)) else value  # a `step` that torch kept as a number once
                _check_shape(key, name, value, view)
                view.copy_(value)
            loaded.append((group, fresh))
        _warn_of_changes(self.param_groups, [group for group, _ in loaded], mixed=self.kind is None)
        self.param_groups[:] = [group for group, _ in loaded]
        self.state = defaultdict(dict)
        self._stacks = [fresh for _, fresh in loaded]
        for _, fresh in loaded:
            self._install(fresh)
        self._skipped = state_dict["skipped"].clone() if "skipped" in state_dict else None
        for post_hook in self._optimizer_load_state_dict_post_hooks.values():
            post_hook(self)

    def __getstate__(self) -> dict[str, Any]:
        self._sync()
        return super().__getstate__() | {"_skipped": self._skipped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._last_scale = None
        self._workspace = None
        self._scalars = [{} for _ in self.param_groups]
        self._stacks = [_Stacks("", [], [], []) for _ in self.param_groups]  # stale: made anew, and filled from `state`
        with torch.no_grad():
            self._sync()


def _warn_of_changes(before: list[dict[str, Any]], after: list[dict[str, Any]], *, mixed: bool) -> None:
    """Says which kinds of state that were asked for here a loaded checkpoint does not have."""
    changes = set()
    for group, loaded in zip(before, after, strict=True):
        usual = defaults(group["optimizer"], mixed=mixed)
        for name in ("state_dtype", "master_weights"):
            if group[name] not in (loaded[name], usual[name]):
                changes.add(f"{name}={loaded[name]!r} in place of {group[name]!r}")
    if changes:
        warnings.warn(f"load_state_dict: options follow the checkpoint: {', '.join(sorted(changes))}", stacklevel=3)


def _check_shape(key: str, name: str, value: Any, like: Tensor) -> None:
    if not isinstance(value, Tensor) or value.shape != like.shape:
        got = f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"state '{key}' of '{name}' must be {like.dtype} of shape {tuple(like.shape)}, got {got}")


def _drop_duplicates(group: dict[str, Any]) -> None:
    """Leaves each parameter of a group once, under its first name."""
    first = {parameter: position for position, parameter in reversed(list(enumerate(group["params"])))}
    for key in ("params", "param_names"):
        if key in group:
            group[key] = [group[key][position] for position in sorted(first.values())]


def _plain_names(groups: list[dict[str, Any]]) -> list[list[str]]:
    """The names of each group's parameters: those given, without wrappers such as `module.`, or parameter.0, parameter.1, … counted over all
    groups."""
    given: list[str] = []
    for group in groups:
        given += group.get("param_names") or [f"parameter.{len(given) + i}" for i in range(len(group["params"]))]
    plain = iter(ops.plain_names(given))
    return [[next(plain) for _ in group["params"]] for group in groups]


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    text = ", ".join(f"'{name}'" for name in ordered[:5])
    return text if len(ordered) <= 5 else f"{text} and {len(ordered) - 5} more"


def _matched(optimizer: Optimizer, saved_groups: list[dict[str, Any]]) -> list[tuple[dict[str, Any], list[int]]]:
    """For each group here, the saved group its options come from and the saved number of each of its parameters."""
    groups = optimizer.param_groups
    by_name = all("param_names" in group for group in [*groups, *saved_groups])
    arranged = any(isinstance(number, str) for saved in saved_groups for number in saved["params"])  # by torch.distributed.checkpoint
    matched = _matched_by_name(groups, saved_groups) if by_name and not arranged else _matched_by_position(groups, saved_groups)
    for index, (source, _) in enumerate(matched):
        saved_kind = source.get("optimizer")
        if saved_kind is None:
            raise ValueError("load_state_dict: the state was not saved by an optimizer of prism_optim: its groups name no 'optimizer'")
        if saved_kind != groups[index]["optimizer"]:
            raise ValueError(
                f"load_state_dict: parameter group {index} was saved by {saved_kind}, but is optimized by {groups[index]['optimizer']} here"
            )
    return matched


def _matched_by_position(groups: list[dict[str, Any]], saved_groups: list[dict[str, Any]]) -> list[tuple[dict[str, Any], list[int]]]:
    if len(groups) != len(saved_groups):
        raise ValueError(f"load_state_dict: expected {len(groups)} parameter groups, got {len(saved_groups)}")
    for index, (group, saved) in enumerate(zip(groups, saved_groups, strict=True)):
        if len(group["params"]) != len(saved["params"]):
            raise ValueError(
                f"load_state_dict: parameter group {index} has {len(group['params'])} parameters here, "
                f"but {len(saved['params'])} in the saved state"
            )
    return [(saved, saved["params"]) for saved in saved_groups]


def _matched_by_name(groups: list[dict[str, Any]], saved_groups: list[dict[str, Any]]) -> list[tuple[dict[str, Any], list[int]]]:
    found = {
        name: (number, index)
        for index, (saved, names) in enumerate(zip(saved_groups, _plain_names(saved_groups), strict=True))
        for name, number in zip(names, saved["params"], strict=True)
    }
    ours = _plain_names(groups)
    missing, extra = set().union(*ours) - set(found), set(found) - set().union(*ours)
    if missing:
        instead = f"; it has {_some(extra)} instead" if extra else ""
        raise ValueError(f"load_state_dict: the saved state has no parameter {_some(missing)}{instead}")
    if extra:
        raise ValueError(f"load_state_dict: the saved state has {_some(extra)}, which this optimizer does not have")
    matched = []
    for group, names in zip(groups, ours, strict=True):
        sources = {found[name][1] for name in names}
        if len(sources) > 1:
            other = next(name for name in names if found[name][1] != found[names[0]][1])
            raise ValueError(f"load_state_dict: '{names[0]}' and '{other}' share a group here, but were saved in two")
        source = saved_groups[sources.pop()] if sources else group
        matched.append((source, [found[name][0] for name in names]))
    return matched
