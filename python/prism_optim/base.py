"""The base of all optimizers: torch's protocol over the library's engine, which owns names, buckets, state and the step."""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from operator import is_
from typing import Any

import torch
from torch import Tensor

from ._library import COMPILED, NUMBERS, OTHERS, PARAMETERS, TABLES, Engine, defaults, engine_for, ops, to_json, to_number


class Optimizer(torch.optim.Optimizer):
    """Base of the optimizers here: a `torch.optim.Optimizer` whose groups name their optimizer and carry its options. State is made when a
    group is added. `state[p]` holds views of tensors stacked over equally shaped parameters, by field; of a part, `split.<k>.<field>`."""

    kind: str | None = None  # the optimizer of groups that name none

    def __init__(self, params: Iterable[Any], options: dict[str, Any], own: Any = None, comm_dtype: str | None = None) -> None:
        self._engine, self._own, self._comm_dtype = Engine(), own, comm_dtype and str(comm_dtype)
        self._told: tuple[list[Any], list[Tensor], list[Any]] = [], [], []  # the shape of the groups, parameters, options but numbers
        self._shown: list[tuple[int, str, Tensor]] = []  # entries of `state` that are views of the engine's: parameter's place, key, view
        super().__init__(params, options)
        self._engine.check_plan()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters with options of their own, and makes their state. A key that is nearly an option's name is an error."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, got {type(param_group).__name__}")
        optimizer: Any = param_group.get("optimizer", self.kind)
        ops.check_group(type(self).__name__, self.kind, optimizer, list(param_group))
        usual = self.defaults if self.kind else defaults(optimizer, mixed=True)
        fresh = {name: value if isinstance(value, Tensor) else copy.deepcopy(value) for name, value in usual.items()}
        super().add_param_group({"optimizer": optimizer, **fresh, **param_group})
        added = self.param_groups[-1]  # torch has warned of duplicate parameters, of which the first stays
        first = sorted({parameter: place for place, parameter in reversed(list(enumerate(added["params"])))}.values())
        added |= {key: [added[key][place] for place in first] for key in PARAMETERS if key in added}
        try:
            Optimizer._sync(self)
        except BaseException:
            self.param_groups.pop()
            raise

    def _sync(self) -> None:
        """Tells the engine what changed in groups and options, and brings its state and `state` together."""
        try:
            groups, params = self.param_groups, [parameter for group in self.param_groups for parameter in group["params"]]
            shape = [(group.get("optimizer", ""), len(group["params"])) for group in groups]
            if shape != self._told[0] or not all(map(is_, params, self._told[1])) or self._engine.moved():
                names, members = [group.get("param_names", []) for group in groups], [group["params"] for group in groups]
                self._engine = engine_for(self._engine, params, self._own)
                for place in self._engine.set_groups([optimizer for optimizer, _ in shape], members, names, self._comm_dtype, ""):
                    self.state.pop(self._told[1][place], None)  # a parameter that left before it was ever stepped
                self._told = shape, params, [None] * len(groups)
            for index, group in enumerate(groups):
                if group["capturable"]:
                    group |= self._engine.place_numbers(index, {name: to_number(group[name]) for name in ("lr", "gamma") if name in group})
                numbers = [to_number(self._rate(group) if name == "lr" else group[name]) for name in NUMBERS[group["optimizer"]]]
                others = {name: group[name] for name in OTHERS[group["optimizer"]]}
                self._engine.set_numbers(index, numbers, group["capturable"])
                if others != self._told[2][index]:
                    self._engine.set_options(index, to_json(others))
                    self._told[2][index] = copy.deepcopy(others)
        except KeyError as missing:
            raise ValueError(f"a group of param_groups has no {missing}; add it with add_param_group(group)") from None
        moved, held = self._engine.make_state(), [self.state.setdefault(parameter, {}) for parameter in params]
        if moved or not all(held[place].get(key) is view for place, key, view in self._shown):
            fields, before = self._engine.state(), {id(view) for *_, view in self._shown}
            self._engine.take_state([{key: torch.as_tensor(own[key]) for key in some if key in own} for own, some in zip(held, fields)])
            for parameter, own, some in zip(params, held, fields, strict=True):
                self.state[parameter] = {key: value for key, value in own.items() if id(value) not in before} | some
            self._shown = [(place, key, view) for place, some in enumerate(fields) for key, view in some.items()]

    def _rate(self, group: dict[str, Any]) -> float | Tensor:
        return group["lr"]  # type: ignore[no-any-return]

    @property
    def _step_supports_amp_scaling(self) -> bool:  # if true, GradScaler leaves unscaling to the step, and frameworks do not clip
        return any(group["capturable"] or any(p.dtype is torch.float16 for p in group["params"]) for group in self.param_groups)

    @torch.compiler.disable(reason=COMPILED)  # type: ignore[no-untyped-call, untyped-decorator]
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes one step. A parameter without a gradient stays as it is, and so does its state. A closure computes the loss again."""
        loss = torch.enable_grad()(closure)() if closure is not None else None
        self._sync()
        self._engine.step(getattr(self, "found_inf", None), getattr(self, "grad_scale", None))
        return loss

    @property
    def skipped(self) -> Tensor:
        """The number of steps that a non-finite gradient has canceled (`skip_nonfinite`)."""
        return self._engine.skipped()  # type: ignore[no-any-return]

    def plan(self) -> str:
        """Returns a table of who shapes each matrix, at what cost, and what each process sends at a step."""
        return self._engine.plan()  # type: ignore[no-any-return]

    def state_dict(self) -> dict[str, Any]:
        """The state in torch's layout, with `skipped` where a group has `skip_nonfinite`, and names without what wrappers put into them."""
        self._sync()
        everything, self.state = self.state, defaultdict(dict, {p: self.state[p] for group in self.param_groups for p in group["params"]})
        try:
            result = super().state_dict()
        finally:
            self.state = everything
        for place, apart in self._engine.apart().items():  # last, in equal order on all processes
            result["state"][place] = {key: value for key, value in result["state"].get(place, {}).items() if key not in apart} | apart
        skipped = {"skipped": self.skipped.clone()} if any(group["skip_nonfinite"] for group in self.param_groups) else {}
        for group, names in zip(result["param_groups"], self._engine.names(), strict=True):
            group |= skipped | ({"param_names": names} if "param_names" in group else {})
        return result | skipped

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what `state_dict` gave, options included, by names where both sides have them, else by position; a mismatch changes nothing."""
        state_dict = state_dict.copy()
        for pre_hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = pre_hook(self, state_dict) or state_dict
        self._sync()
        usual = defaultdict[Any, dict[str, Any]](dict, {optimizer: defaults(optimizer, mixed=self.kind is None) for optimizer in TABLES})
        saved = [{**usual[group.get("optimizer")], **copy.deepcopy(group)} for group in state_dict["param_groups"]]
        skipped = [state_dict.get("skipped"), *(group.pop("skipped", None) for group in saved)]
        states = [state_dict["state"].get(number, {}) for group in saved for number in group["params"]]
        values = [{key: value for key, value in state.items() if isinstance(value, (Tensor, int, float))} for state in states]
        headers = [{key: group[key] for key in ("optimizer", *PARAMETERS, *usual[group.get("optimizer")]) if key in group} for group in saved]
        sources, places, fields, changes = self._engine.restore(to_json(headers), values, skipped, self.kind is None)
        if changes:
            warnings.warn(f"load_state_dict: options follow the checkpoint: {changes}", stacklevel=3)
        for index, source in enumerate(sources):
            own = {key: value for key, value in self.param_groups[index].items() if key in PARAMETERS}
            self.param_groups[index] = {key: value for key, value in saved[source].items() if key not in PARAMETERS} | own
        self.state = defaultdict(dict)
        self._sync()
        for parameter, state, taken in zip([self._told[1][place] for place in places], states, fields, strict=True):
            others = {key: value for key, value in state.items() if key not in taken}  # such as the buffers of a wrapper
            for key, value in others.items():
                self.state[parameter][key] = value.to(parameter.device, copy=True) if isinstance(value, Tensor) else copy.deepcopy(value)
        for post_hook in self._optimizer_load_state_dict_post_hooks.values():
            post_hook(self)

    def __getstate__(self) -> dict[str, Any]:
        self._sync()
        return super().__getstate__() | {"_engine": self._engine.to_copy(), "_comm_dtype": self._comm_dtype}

    def __setstate__(self, state: dict[str, Any]) -> None:  # pickles of earlier versions have no engine
        super().__setstate__({"_engine": Engine(), "_told": ([], [], []), "_shown": [], "_own": None, "_comm_dtype": None} | state)
