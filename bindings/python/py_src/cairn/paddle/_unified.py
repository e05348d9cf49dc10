"""Writes a checkpoint as a folder that Paddle's trainers resume from ("Unified Checkpoint").

::

    model-00001-of-0000N.safetensors            model.safetensors.index.json
    optimizer-00001-of-0000N.safetensors        optimizer.safetensors.index.json        <name>/moment1_0 …
    master_weights-00001-of-0000N.safetensors   master_weights.safetensors.index.json
    scheduler.pdparams, config.json …
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from .._checkpoint import Checkpoint
from .._lazy import LazyTensor
from ..errors import StateError

if TYPE_CHECKING:
    paddle: Any
else:
    import paddle

#: How much of a tensor is in memory at once; a single row may be longer.
CHUNK_BYTES = 64 << 20

_SAFETENSORS = {
    "bool": "BOOL",
    "bf16": "BF16",
    "f8_e4m3": "F8_E4M3",
    "f8_e5m2": "F8_E5M2",
    **{name: name.upper() for name in "u8 i8 i16 u16 f16 i32 u32 f32 f64 i64 u64 c64".split()},
}


def export_unified(
    checkpoint: Checkpoint,
    folder: str | os.PathLike[str],
    *,
    model: str = "model",
    optim: str = "optim",
    max_shard_size: int = 5_000_000_000,
) -> list[str]:
    """Writes the layer saved under ``model`` and the optimizer saved under ``optim``, if there is one; returns the files.

    The folder appears when it is complete. Tensors are copied in pieces, so memory stays small.

    Raises:
        StateError: if the folder exists, nothing is saved under ``model``, or a type has no name in safetensors.
    """
    target = Path(folder)
    if target.exists():
        raise StateError(f"`{target}` exists already", hint="choose another folder, or remove it")
    kinds = _sorted_out(checkpoint, model, optim)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as temporary:
        place = Path(temporary) / "folder"
        place.mkdir()
        for kind, tensors in kinds.items():
            extra = {"master_weights": "master_weights" in kinds} if kind == "optimizer" else {}
            _write_kind(place, kind, checkpoint, tensors, max_shard_size, extra)
        _write_side_files(place, checkpoint, optim)
        place.rename(target)
    return sorted(entry.name for entry in target.iterdir())


def _sorted_out(checkpoint: Checkpoint, model: str, optim: str) -> dict[str, dict[str, LazyTensor]]:
    """Kind of file → name in it → tensor."""
    kinds: dict[str, dict[str, LazyTensor]] = {"model": {}, "optimizer": {}, "master_weights": {}}
    state = f"{optim}.state."
    for name in checkpoint:
        if name.startswith(f"{model}."):
            kinds["model"][name.removeprefix(f"{model}.")] = checkpoint[name]
        elif name.startswith(state):
            parameter, _, what = name.removeprefix(state).rpartition(".")
            if what == "master_weight":
                kinds["master_weights"][parameter] = checkpoint[name]
            else:
                kinds["optimizer"][f"{parameter}/{what}"] = checkpoint[name]
    if not kinds["model"]:
        raise StateError(
            f"the checkpoint has no tensors under `{model}`",
            hint='say under which key the layer was saved: export_unified(…, model="…", optim="…")',
        )
    return {kind: tensors for kind, tensors in kinds.items() if tensors}


@dataclass
class _File:
    tensors: dict[str, LazyTensor]
    nbytes: int = 0


def _write_kind(
    place: Path,
    kind: str,
    checkpoint: Checkpoint,
    tensors: dict[str, LazyTensor],
    max_shard_size: int,
    extra: dict[str, bool],
) -> None:
    files = [_File({})]
    for name, tensor in tensors.items():
        if files[-1].tensors and files[-1].nbytes + tensor.nbytes > max_shard_size:
            files.append(_File({}))
        files[-1].tensors[name] = tensor
        files[-1].nbytes += tensor.nbytes
    weight_map = {}
    for number, file in enumerate(files, 1):
        file_name = f"{kind}-{number:05}-of-{len(files):05}.safetensors"
        weight_map.update(dict.fromkeys(file.tensors, file_name))
        with open(place / file_name, "wb") as out:
            _write_file(out, checkpoint, file.tensors)
    total = sum(file.nbytes for file in files)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map, **extra}
    (place / f"{kind}.safetensors.index.json").write_text(json.dumps(index, indent=4))


def _write_file(out: BinaryIO, checkpoint: Checkpoint, tensors: dict[str, LazyTensor]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "np"}}
    offset = 0
    for name, tensor in tensors.items():
        dtype = _SAFETENSORS.get(tensor.cairn_dtype)
        if dtype is None:
            raise StateError(f"`{tensor.name}` is {tensor.cairn_dtype}, which has no name in safetensors")
        end = offset + tensor.nbytes
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    out.write(len(encoded).to_bytes(8, "little") + encoded)
    for tensor in tensors.values():
        for chunk in _chunks(checkpoint, tensor):
            out.write(chunk)
    out.flush()
    os.fsync(out.fileno())


def _chunks(checkpoint: Checkpoint, tensor: LazyTensor) -> Iterator[Any]:
    """The bytes of a tensor, some rows at a time."""
    if tensor.size == 0:
        return
    shape = tensor.shape or (1,)
    row_bytes = tensor.nbytes // shape[0]
    rows = max(1, CHUNK_BYTES // row_bytes)
    for start in range(0, shape[0], rows):
        count = min(rows, shape[0] - start)
        chunk = np.empty(count * row_bytes, np.uint8)
        box = ((start, *[0] * (len(shape) - 1)), (count, *shape[1:])) if tensor.shape else ((), ())
        checkpoint.read_boxes(tensor.name, [box], [chunk])
        yield chunk


def _write_side_files(place: Path, checkpoint: Checkpoint, optim: str) -> None:
    schedule = checkpoint.plain.get(f"{optim}.LR_Scheduler")
    if schedule is not None:
        paddle.save(schedule, str(place / "scheduler.pdparams"), protocol=4)
    for name, content in checkpoint.assets.items():
        file = place / name
        if not file.exists() and file.parent == place:
            file.write_bytes(content)
