"""Parameters that several processes share: DTensors, and replicas whose matrices are shaped by one process each.

Reads how DTensors are cut, and shows the engine, which knows only plain tensors, the shards.
"""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement, _StridedShard

Box = tuple[list[int], list[int]]  # first index and length in each dimension

_groups: dict[tuple[int, ...], dist.ProcessGroup] = {}  # that were made here, by their ranks


def _is_shard(placement: Placement) -> bool:
    return isinstance(placement, (Shard, _StridedShard))


def _cutting_order(mesh: DeviceMesh, placements: Sequence[Placement]) -> list[int] | None:
    """Returns the mesh dimensions that cut a tensor, in the order in which they do: from left to right, but a `_StridedShard` after those on
    its right that cut the same dimension, as FSDP does after tensor parallelism. None: no such order gives these placements."""
    order: list[int] = []
    for i in reversed(range(len(placements))):
        placement: Any = placements[i]
        if isinstance(placement, _StridedShard):
            right = [mesh.size(j) for j in order if placements[j].dim == placement.dim]  # type: ignore[attr-defined]
            if placement.split_factor != math.prod(right):
                return None
            order.append(i)
        elif isinstance(placement, Shard):
            order.insert(0, i)
        elif not isinstance(placement, Replicate):
            return None
    return order


def _box(shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement], order: Sequence[int], coordinate: Sequence[int]) -> Box:
    """Returns what the process at this coordinate of the mesh holds of a tensor. Each cut is that of `torch.chunk`."""
    begin, size = [0] * len(shape), list(shape)
    for i in order:
        dim = placements[i].dim  # type: ignore[attr-defined]
        chunk = -(-size[dim] // mesh.size(i))
        skipped = min(coordinate[i] * chunk, size[dim])
        begin[dim] += skipped
        size[dim] = min(chunk, size[dim] - skipped)
    return begin, size


def _group_of(ranks: Sequence[int]) -> dist.ProcessGroup:
    """Returns a process group of these ranks. Only they need to ask for it."""
    key = tuple(sorted(ranks))
    if len(key) == dist.get_world_size():
        return dist.group.WORLD  # type: ignore[return-value]
    if key not in _groups:
        _groups[key] = dist.new_group(list(key), use_local_synchronization=True)
    return _groups[key]


def _sharing_group(parameter: DTensor) -> tuple[dist.ProcessGroup, dict[int, list[int]]] | None:
    """Returns the processes that hold one copy of a parameter together, and the coordinate of each; None if each holds all of it."""
    mesh, here = parameter.device_mesh, parameter.device_mesh.get_coordinate()
    cutting = [i for i, placement in enumerate(parameter.placements) if _is_shard(placement) and mesh.size(i) > 1]
    if not cutting or here is None:
        return None
    coordinates: dict[int, list[int]] = {}
    for indices in itertools.product(*(range(mesh.size(i)) for i in cutting)):
        coordinate = list(here)
        for i, index in zip(cutting, indices, strict=True):
            coordinate[i] = index
        coordinates[int(mesh.mesh[tuple(coordinate)])] = coordinate
    group = mesh.get_group(cutting[0]) if len(cutting) == 1 else _group_of(list(coordinates))
    return group, coordinates


def _everyone(parameters: Sequence[DTensor], own: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """Returns the processes of `own`, of all meshes, and of the meshes that they are parts of: they skip a step together."""
    ranks = set(dist.get_process_group_ranks(own)) if own is not None else set()
    if own is not None and not parameters:
        return own
    for mesh in {parameter.device_mesh for parameter in parameters}:
        root = mesh._get_root_mesh() if hasattr(mesh, "_get_root_mesh") else mesh
        ranks |= set(root.mesh.flatten().tolist())
    return _group_of(sorted(ranks))


class _Gathered:
    """The whole copy of a parameter that is cut in a way the engine does not know. Every process steps it."""

    def __init__(self, parameter: Any, name: str) -> None:
        warnings.warn(
            f"prism_optim: '{name}' with placements {parameter.placements} is stepped through a whole copy on every process; "
            "expected Shard, Replicate, or the _StridedShard of FSDP with tensor parallelism",
            stacklevel=6,
        )
        self.parameter, self.whole = parameter, parameter.detach().full_tensor().clone()

    def read(self) -> None:
        self.whole.copy_(self.parameter.detach().full_tensor())
        gradient: Any = self.parameter.grad
        self.whole.grad = None if gradient is None else gradient.full_tensor()

    def write(self) -> None:
        mesh, placements = self.parameter.device_mesh, self.parameter.placements
        whole = DTensor.from_local(self.whole.detach(), mesh, [Replicate()] * mesh.ndim, run_check=False)
        self.parameter.to_local().copy_(whole.redistribute(mesh, placements).to_local())
        self.whole.grad = None


class ShardedEngine:
    """The engine of an optimizer whose parameters several processes share: it has the shards, and this class turns DTensors into shards and
    back. The processes of `own` share the work on parameters that each of them holds whole."""

    def __init__(self, plain: Any, own: dist.ProcessGroup | None) -> None:
        if own is not None and not isinstance(own, dist.ProcessGroup):
            raise TypeError(f"prism_optim: own must be a process group of torch.distributed, got {type(own).__name__}")
        self.plain, self._own = plain, own
        self._parameters: list[Tensor] = []
        self._locals: list[Tensor] = []
        self._gathered: dict[int, _Gathered] = {}  # by the place of the parameter

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def moved(self) -> bool:
        """Returns true if a DTensor has another shard than it had in `set_groups`."""
        return any(
            isinstance(parameter, DTensor) and place not in self._gathered and parameter._local_tensor is not local
            for place, (parameter, local) in enumerate(zip(self._parameters, self._locals, strict=True))
        )

    def set_groups(
        self, optimizers: list[str], parameters: list[list[Tensor]], names: list[list[str]], comm_dtype: str | None, _: str
    ) -> list[int]:
        everything = [parameter for group in parameters for parameter in group]
        labels = [name for group, own in zip(parameters, names, strict=True) for name in (own or map(str, range(len(group))))]
        layouts: list[dict[str, Any]] = []
        numbers: list[int] = []
        gathered: dict[int, _Gathered] = {}
        for place, parameter in enumerate(everything):
            layout = self._layout(parameter) if isinstance(parameter, DTensor) else self._replicas(parameter)
            if layout is None:
                known = self._gathered.get(place)
                gathered[place] = known if known and known.parameter is parameter else _Gathered(parameter, labels[place])
            if layout and layout not in layouts:
                layouts.append(layout)
            numbers.append(layouts.index(layout) if layout else -1)
        self._parameters, self._gathered = everything, gathered
        self._locals = [
            gathered[place].whole if place in gathered else parameter._local_tensor if isinstance(parameter, DTensor) else parameter
            for place, parameter in enumerate(everything)
        ]
        shards, of = iter(self._locals), iter(numbers)
        everyone = _everyone([parameter for parameter in everything if isinstance(parameter, DTensor)], self._own)
        sharding = {
            "everyone": everyone.group_name,
            "layouts": layouts,
            "of": [[next(of) for _ in group] for group in parameters],
        }
        locals_of = [[next(shards) for _ in group] for group in parameters]
        return self.plain.set_groups(optimizers, locals_of, names, comm_dtype, json.dumps(sharding))  # type: ignore[no-any-return]

    def _replicas(self, parameter: Tensor) -> dict[str, Any]:
        """Returns the description of a parameter that every process of `own` holds whole."""
        if self._own is None or self._own.size() == 1:
            return {}
        whole = [0] * parameter.dim(), list(parameter.shape)
        return {"group": self._own.group_name, "shape": list(parameter.shape), "boxes": [whole] * self._own.size()}

    @staticmethod
    def _layout(parameter: DTensor) -> dict[str, Any] | None:
        """Returns the description of a layout for the engine: none if every process holds the whole, None if the engine has no such layout."""
        sharing = _sharing_group(parameter)
        order = _cutting_order(parameter.device_mesh, parameter.placements)
        if order is None:
            return None
        if sharing is None:
            return {}
        group, coordinates = sharing
        mesh, placements = parameter.device_mesh, parameter.placements
        boxes = [_box(parameter.shape, mesh, placements, order, coordinates[rank]) for rank in dist.get_process_group_ranks(group)]
        if list(parameter._local_tensor.shape) != boxes[dist.get_rank(group)][1]:
            return None
        return {"group": group.group_name, "shape": list(parameter.shape), "boxes": boxes}

    def state(self) -> list[dict[str, Tensor]]:
        """Returns the state of all parameters: as DTensors where it is cut as its parameter is."""
        self._cut: list[dict[str, tuple[list[int], bool]]] = json.loads(self.plain.cut_fields())
        shown = []
        for parameter, fields, cut in zip(self._parameters, self.plain.state(), self._cut, strict=True):
            own = {}
            for key, value in fields.items():
                shape, apart = cut.get(key, ([], True))
                whole = apart or not isinstance(parameter, DTensor)
                own[key] = value if whole else _dtensor(value, parameter, parameter.placements, shape)  # type: ignore[attr-defined]
            shown.append(own)
        return shown

    def to_copy(self) -> Any:
        """Returns the engine to copy or pickle in place of this one. Throws if some state is kept by its owner only."""
        if self._own is not None or any(apart for fields in self._cut for _, apart in fields.values()):
            raise TypeError(
                "prism_optim: an optimizer whose state several processes share cannot be copied or pickled; save its state_dict() instead"
            )
        return self.plain

    def take_state(self, held: list[dict[str, Tensor]]) -> None:
        self.plain.take_state([self._plain(place, fields) for place, fields in enumerate(held)])

    def _plain(self, place: int, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what the engine takes of these fields: the shards of those cut as their parameter is, the others whole."""
        parameter, own = self._parameters[place] if place >= 0 else None, {}
        for key, value in fields.items():
            if isinstance(value, DTensor):
                shape, apart = self._cut[place].get(key, ([], True)) if place >= 0 else ([], True)
                alike = isinstance(parameter, DTensor) and (parameter.device_mesh, parameter.placements) == (value.device_mesh, value.placements)
                value = value._local_tensor if alike and not apart else value.full_tensor()
            own[key] = value
        return own

    def step(self, found_inf: Tensor | None, grad_scale: Tensor | None) -> None:
        with torch.no_grad():
            for place, (parameter, local) in enumerate(zip(self._parameters, self._locals, strict=True)):
                if place in self._gathered:
                    self._gathered[place].read()
                elif isinstance(parameter, DTensor):
                    local.grad = _local_gradient(parameter)
            try:
                self.plain.step(*(value.full_tensor() if isinstance(value, DTensor) else value for value in (found_inf, grad_scale)))
            finally:
                for place, (parameter, local) in enumerate(zip(self._parameters, self._locals, strict=True)):
                    if isinstance(parameter, DTensor) and place not in self._gathered:
                        local.grad = None
            for copy in self._gathered.values():
                copy.write()

    def restore(self, groups: str, states: list[dict[str, Any]], skipped: list[Tensor | None], mixed: bool) -> Any:
        places = self.plain.places(groups)
        return self.plain.restore(groups, [self._plain(place, state) for place, state in zip(places, states, strict=True)], skipped, mixed)

    def apart(self) -> dict[int, dict[str, Any]]:
        """Returns the fields that are not cut as their parameter is, by the place of the parameter: put together, and cut along their first
        dimension if the parameter is cut. All processes must ask for them together."""
        saved: dict[int, dict[str, Any]] = {}
        for place, cut in enumerate(self._cut):
            parameter: Any = self._parameters[place]
            fields = {key: shape for key, (shape, apart) in cut.items() if apart}
            if not fields:
                continue
            saved[place] = {}
            if not isinstance(parameter, DTensor):
                saved[place] = {key: self.plain.whole_state(place, key) for key in fields}
                continue
            mesh = parameter.device_mesh
            placements = [Shard(0) if _is_shard(placement) else Replicate() for placement in parameter.placements]
            order = _cutting_order(mesh, placements) or []
            for key, shape in fields.items():
                begin, size = _box(shape, mesh, placements, order, mesh.get_coordinate() or ())
                part = self.plain.whole_state(place, key).narrow(0, begin[0], size[0]).clone()
                saved[place][key] = _dtensor(part, parameter, placements, shape)
        return saved

    def spectra(self) -> Any:
        raise NotImplementedError("inspect: several processes share the parameters; inspect a run of one process")


def _local_gradient(parameter: DTensor) -> Tensor | None:
    gradient: Any = parameter.grad
    if gradient is None:
        return None
    if gradient.placements != parameter.placements:
        gradient = gradient.redistribute(parameter.device_mesh, parameter.placements)
    local: Tensor = gradient.to_local()
    return local


def _dtensor(local: Tensor, parameter: Any, placements: Sequence[Placement], shape: Sequence[int]) -> Tensor:
    whole = torch.Size(shape)
    stride = torch.empty(whole, device="meta").stride()
    return DTensor.from_local(local, parameter.device_mesh, placements, run_check=False, shape=whole, stride=stride)
