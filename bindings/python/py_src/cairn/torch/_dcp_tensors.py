"""Torch tensors as DCP's plans hand them out: element types, and memory as bytes."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import StateError
from . import _dtypes
from ._memory import address_of


def dtype_name(dtype: torch.dtype, name: str) -> str:
    """Cairn's name of an element type.

    Raises:
        StateError: if it has none, or DCP counts its elements in another way.
    """
    found = _dtypes.dtype_name(dtype, name)
    _refuse_packed(found, name)
    return found


def torch_dtype(dtype: str, name: str) -> torch.dtype:
    """Torch's element type of a Cairn name.

    Raises:
        StateError: if torch has none, or DCP counts its elements in another way.
    """
    _refuse_packed(dtype, name)
    found: torch.dtype = _dtypes.torch_dtype(dtype, name)
    return found


def on_host(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """``tensor`` as contiguous memory of the host: itself if it is that already.

    Raises:
        StateError: if it is sparse, quantized or without memory of its own.
    """
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        kind = "on the meta device" if tensor.is_meta else "sparse or quantized"
        raise StateError(f"`{name}` is {kind}: only dense tensors with memory can be saved")
    host = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    if host.numel():
        address_of(host, name)
    return host


def memory(tensor: torch.Tensor) -> Any:
    """The bytes of a contiguous tensor of the host, shared with it."""
    return tensor.detach().reshape(-1).view(torch.uint8).numpy()


def _refuse_packed(dtype: str, name: str) -> None:
    if dtype == "f4":
        raise StateError(
            f"`{name}` holds four-bit numbers, which DCP counts by the byte",
            hint="save it with `cairn.Checkpointer`, or as a view of uint8",
        )
