"""The items of DCP's save plans as tensors and plain values of a Cairn step."""

from __future__ import annotations

import io
import json
import pickle
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult

from .._cairn import Spec
from .._values import NotPlain, encode, refused
from ..errors import StateError
from ._dcp_tensors import dtype_name, memory, on_host

#: The file in a checkpoint that holds what only DCP needs: how keys were flattened.
ASSET = "dcp.json"

_Tensor = tuple[str, Spec, Any, Sequence[int] | None]


def pieces(plan: SavePlan, planner: SavePlanner, writer: int) -> tuple[list[_Tensor], dict[str, Any], list[WriteResult]]:
    """What a rank writes: its tensors, its plain values by name, and what it reports of them.

    Raises:
        StateError: if an item cannot be kept; the message names it.
    """
    shards: dict[str, list[tuple[WriteItem, torch.Tensor]]] = defaultdict(list)
    values: dict[str, Any] = {}
    results = []
    for item in plan.items:
        name, plain, len_bytes = item.index.fqn, None, 0
        if item.type == WriteItemType.BYTE_IO:
            plain = values[name] = _plain(planner, item)
        else:
            tensor = on_host(planner.resolve_data(item), name)  # type: ignore[arg-type]
            len_bytes = tensor.nbytes
            if len_bytes:
                shards[name].append((item, tensor))
        results.append(WriteResult(item.index, len_bytes, plain))
    return _apart([_tensor(name, held, writer) for name, held in shards.items()]), values, results


def closing(
    metadata: Metadata, results: list[list[WriteResult]], *, per_rank: bool
) -> tuple[list[_Tensor], dict[str, Any], bytes]:
    """What the coordinator adds to the ranks' tensors: those without elements, all plain values, and DCP's own notes.

    Raises:
        StateError: if no rank has written a tensor of the state.
    """
    written = {result.index.fqn for rank in results for result in rank}
    empty: list[_Tensor] = []
    for name, entry in metadata.state_dict_metadata.items():
        if not isinstance(entry, TensorStorageMetadata):
            continue
        if entry.size.numel() == 0:
            spec = Spec.replicated(dtype_name(entry.properties.dtype, name), entry.size, [0])
            empty.append((name, spec, np.empty(0, np.uint8), None))
        elif name not in written:
            raise StateError(f"`{name}` is in the save plan, but no rank has a piece of it")
    values = {} if per_rank else _values(metadata, results)
    notes = {"planner_data": _encoded(metadata.planner_data, "planner_data"), "values_per_rank": per_rank}
    return empty, values, json.dumps(notes).encode()


def _values(metadata: Metadata, results: list[list[WriteResult]]) -> dict[str, Any]:
    kinds = metadata.state_dict_metadata
    plain = [result for rank in results for result in rank if not isinstance(kinds.get(result.index.fqn), TensorStorageMetadata)]
    return {result.index.fqn: result.storage_data for result in plain}


def _tensor(name: str, held: list[tuple[WriteItem, torch.Tensor]], writer: int) -> _Tensor:
    """All pieces of one name that this rank holds, one after another in memory."""
    data = [item.tensor_data for item, _ in held]
    boxes = [(entry.chunk.offsets, entry.chunk.sizes, None) for entry in data if entry is not None]
    tensors = [tensor for _, tensor in held]
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) > 1 or data[0] is None:
        raise StateError(f"`{name}` has pieces of different types: {', '.join(sorted(map(str, dtypes)))}")
    spec = Spec.listed(dtype_name(tensors[0].dtype, name), data[0].size, {writer: boxes})
    parts = [memory(tensor) for tensor in tensors]
    return name, spec, parts[0] if len(parts) == 1 else np.concatenate(parts), None


def _apart(tensors: list[_Tensor]) -> list[_Tensor]:
    """The tensors with memory of their own each.

    Names for equal memory would become aliases; but DCP may have given one rank a shard of both names, and another of one only.
    """
    seen: set[int] = set()
    apart = []
    for name, spec, data, strides in tensors:
        address = data.__array_interface__["data"][0]
        apart.append((name, spec, data.copy() if address in seen else data, strides))
        seen.add(address)
    return apart


def _plain(planner: SavePlanner, item: WriteItem) -> Any:
    return _encoded(_object(planner, item), item.index.fqn)


def _object(planner: SavePlanner, item: WriteItem) -> Any:
    """The object behind an item of bytes: from the planner itself, or out of the pickle it has made of it."""
    if isinstance(planner, DefaultSavePlanner):
        kind, default = type(planner), DefaultSavePlanner
        if (kind.resolve_data, kind.transform_object) == (default.resolve_data, default.transform_object):
            return planner.lookup_object(item.index)
    stream = planner.resolve_data(item)
    try:
        return torch.load(io.BytesIO(stream.getbuffer()), weights_only=True)  # type: ignore[union-attr]
    except (pickle.UnpicklingError, EOFError, RuntimeError) as error:
        raise StateError(f"`{item.index.fqn}` is no plain data, and cannot be saved without pickle: {error}") from None


def _encoded(value: Any, name: str) -> Any:
    try:
        return encode(value, name)
    except NotPlain as error:
        raise refused(error) from None
