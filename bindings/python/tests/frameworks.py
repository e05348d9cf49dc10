"""One framework's side of `test_frameworks.py`: saves the common state, then loads everybody's and compares bits.

    python frameworks.py FRAMEWORK FOLDER        reads a JSON list of checkpoints to load from its input
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import cairn
from cairn._dtypes import numpy_dtype

COMMON = ["bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "c64", "f8_e4m3", "f8_e5m2"]
MORE = ["u16", "u32", "u64", "f8_e8m0", "f8_e4m3fnuz", "f8_e5m2fnuz"]
SHAPES = {"scalar": (), "empty": (3, 0, 2), "one": (1,), "vector": (17,), "cube": (2, 3, 4), "größe.日本 🗿": (5, 2)}
VALUES = {"epoch": 3, "lr": 0.1, "betas": (0.9, 0.95), "name": "größe", "raw": b"\x00\xff", "nothing": None}


class Framework(NamedTuple):
    """How tensors are made of bytes and back."""

    dtypes: list[str]
    make: Callable[[bytes, str, tuple[int, ...]], Any]
    bits: Callable[[Any], bytes]


def content(dtype: str, kind: str) -> bytes:
    """Bytes that only the name decides; every pattern of bits may occur, except in truth values."""
    count = math.prod(SHAPES[kind]) * numpy_dtype(dtype).itemsize
    seed = hashlib.sha256(f"{dtype} {kind}".encode()).digest()
    raw = np.random.default_rng(list(seed)).integers(0, 256, count, np.uint8)
    return (raw % 2 if dtype == "bool" else raw).tobytes()


def numpy_side() -> Framework:
    def make(raw: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
        return np.frombuffer(bytearray(raw), np.uint8).view(numpy_dtype(dtype)).reshape(shape)

    return Framework(COMMON + MORE, make, lambda array: array.tobytes())


def torch_side() -> Framework:
    import torch

    def make(raw: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
        flat = torch.tensor(list(raw), dtype=torch.uint8)
        return flat.view(getattr(torch, library_name(dtype))).reshape(shape)

    return Framework(COMMON + MORE, make, lambda tensor: tensor.reshape(-1).view(torch.uint8).numpy().tobytes())


def library_name(dtype: str) -> str:
    """The element type as numpy, torch, JAX and Paddle call it."""
    return str(numpy_dtype(dtype).name)


def jax_side() -> Framework:
    os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    plain = numpy_side()
    halves = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))

    def make(raw: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
        array = plain.make(raw, dtype, shape)
        return jax.device_put(array, halves) if shape[:1] == (2,) else jax.device_put(array)

    return Framework(COMMON + MORE, make, lambda array: np.asarray(array).tobytes())


def paddle_side() -> Framework:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import paddle
    paddle.set_device("cpu")

    def make(raw: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
        name = library_name(dtype)
        if not raw:
            return paddle.empty(shape, name)
        return paddle.to_tensor(np.frombuffer(raw, np.uint8)).view(name).reshape(shape)

    def bits(tensor: Any) -> bytes:
        return bytes(tensor.reshape([-1]).view("uint8").numpy().tobytes()) if tensor.size else b""

    return Framework(COMMON, make, bits)


SIDES = {"numpy": numpy_side, "torch": torch_side, "jax": jax_side, "paddle": paddle_side}


def dtypes_of(name: str) -> list[str]:
    return COMMON if name == "paddle" else COMMON + MORE


def state(side: Framework, dtypes: list[str], *, blank: bool) -> dict[str, Any]:
    def tensor(dtype: str, kind: str) -> Any:
        raw = content(dtype, kind)
        return side.make(bytes(len(raw)) if blank else raw, dtype, SHAPES[kind])

    tensors = {dtype: {kind: tensor(dtype, kind) for kind in SHAPES} for dtype in dtypes}
    return {"tensors": tensors, "values": dict.fromkeys(VALUES) if blank else dict(VALUES)}


def load_and_compare(side: Framework, source: dict[str, Any]) -> None:
    """Loads one checkpoint: all names both sides have types for."""
    dtypes = [dtype for dtype in source["dtypes"] if dtype in side.dtypes]
    into = state(side, dtypes, blank=True)
    if not source["has_values"]:
        del into["values"]
    loaded = cairn.load(source["path"], into, strict=True if dtypes == source["dtypes"] else "partial").state
    for dtype in dtypes:
        for kind, shape in SHAPES.items():
            found = loaded["tensors"][dtype][kind]
            assert tuple(found.shape) == shape
            assert side.bits(found) == content(dtype, kind), (source, dtype, kind)
    assert loaded.get("values", VALUES) == VALUES


def main(name: str, folder: str) -> None:
    side = SIDES[name]()
    assert side.dtypes == dtypes_of(name)
    cairn.Checkpointer(folder).save(1, state(side, side.dtypes, blank=False), blocking=True)
    print("saved", flush=True)
    for source in json.loads(sys.stdin.readline()):
        load_and_compare(side, source)
        print("loaded", source["path"], flush=True)
    others = {"torch", "jax", "paddle"} - {name}
    assert not others & set(sys.modules), "one framework does not need another"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
