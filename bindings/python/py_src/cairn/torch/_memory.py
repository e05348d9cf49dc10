"""The memory of a torch tensor as bytes: shared where a CPU can address it, staged where it cannot."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch

from .._cairn import Spec
from .._part import Context, DeviceMemory, Part
from ..errors import StateError

_BYTE = np.dtype(np.uint8)


def tensor_part(tensor: Any, spec: Spec, path: str, context: Context) -> Part:
    """The part whose placement is ``spec`` and whose local elements are those of ``tensor``.

    Raises:
        StateError: if the tensor has no memory, or its elements share it and are to be loaded.
    """
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        raise StateError(
            f"`{path}` is a {_kind(tensor)} tensor, which cannot be saved as it is",
            hint="save the dense tensors it consists of",
        )
    if tensor.is_meta:
        raise StateError(
            f"`{path}` is on the meta device, so it has no data",
            hint="give the module memory first: `module.to_empty(device=…)`",
        )
    if not tensor.numel():
        return Part(spec, np.empty(0, dtype=_BYTE))
    if tensor.is_cuda and not context.loading:
        return _on_device(tensor, spec, path, context)
    if not tensor.is_cpu or tensor.is_conj() or tensor.is_neg():
        return _staged(tensor, spec, path, context)
    if tensor.is_contiguous():
        address, len_bytes = address_of(tensor, path), tensor.nbytes
        return Part(spec, memory_at(address, len_bytes), key=(address, len_bytes))
    return _strided(tensor, spec, path, context)


def owned_part(tensor: Any, spec: Spec, path: str, context: Context) -> Part:
    """A part to save whose elements nobody but the part keeps."""
    if tensor.is_cuda:
        return _on_device(tensor, spec, path, context, own=True)
    return _to_host(tensor, spec, path)


def address_of(tensor: Any, path: str) -> int:
    """Where the elements of a tensor with memory of its own lie.

    Raises:
        StateError: if it has none: a subclass that wraps other tensors, a tensor of a function that is traced or vectorised.
    """
    try:
        address: int = tensor.data_ptr()
    except RuntimeError:
        address = 0
    if address:
        return address
    kind = type(tensor).__name__
    raise StateError(
        f"`{path}` is a {kind} on {tensor.device} without memory of its own, so it cannot be saved as it is",
        hint="save the tensors that it consists of, or a plain copy of it",
    )


def memory_at(address: int, len_bytes: int) -> Any:
    """Memory as an array. It keeps nothing alive: whoever owns the memory must outlive it."""
    buffer: Any = (ctypes.c_uint8 * len_bytes).from_address(address)
    return np.frombuffer(buffer, dtype=_BYTE)


def _on_device(tensor: Any, spec: Spec, path: str, context: Context, own: bool = False) -> Part:
    """A part to save that stays where it is: the engine copies it in the order of the device's work.

    What is not simply there is copied on the device first, and that copy is ``own``: nobody changes it.
    """
    original = address_of(tensor, path)
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    address, len_bytes = address_of(plain, path), plain.nbytes
    own = own or address != original
    context.owners.append(plain)
    memory = DeviceMemory(plain.device.index, address, len_bytes, fenced=own)
    return Part(spec, memory, key=None if own else (plain.device, address, len_bytes))


def _strided(tensor: Any, spec: Spec, path: str, context: Context) -> Part:
    strides = tensor.stride()
    if _overlaps(tensor.shape, strides):
        if context.loading:
            raise StateError(
                f"`{path}` has elements that share memory (an expanded view), so nothing can be loaded into it",
                hint="load into a copy: `.contiguous()`",
            )
        return _staged(tensor, spec, path, context)
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, strides, strict=True))
    address, len_bytes = address_of(tensor, path), reach * tensor.element_size()
    return Part(spec, memory_at(address, len_bytes), strides, key=(address, len_bytes, strides))


def _overlaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether two elements may share memory: a dim's stride is shorter than all that the finer dims reach."""
    reach = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1:
            if stride < reach:
                return True
            reach += (size - 1) * stride
    return False


def _staged(tensor: Any, spec: Spec, path: str, context: Context) -> Part:
    """A part whose memory is a copy on the host. Names of the same tensor share the copy."""
    assert context.notes is not None, "every walk has notes"
    staged: dict[object, tuple[Part, Any]] = context.notes.setdefault("torch.staged", {})
    key = _identity(tensor, path)
    if key not in staged:
        part = _load_through_host(tensor, spec, key) if context.loading else _to_host(tensor, spec, path)
        # The tensor is held, so that no other gets its place while the walk goes on.
        staged[key] = part, tensor
    return staged[key][0]


def _identity(tensor: Any, path: str) -> object:
    """What tells a tensor's elements apart from others'; a device that has no addresses knows them by the tensor alone."""
    if tensor.is_cpu or tensor.is_cuda:
        place: object = address_of(tensor, path)
    else:
        try:
            place = tensor.data_ptr() or ("tensor", id(tensor))
        except RuntimeError:
            place = "tensor", id(tensor)
    views = tensor.is_conj(), tensor.is_neg()
    return tensor.device, place, tensor.shape, tensor.stride(), tensor.dtype, views


def _to_host(tensor: Any, spec: Spec, path: str) -> Part:
    """A part whose memory is a copy on the host, from a device that the engine does not know."""
    with torch.no_grad():
        host = tensor.to("cpu").resolve_conj().resolve_neg().contiguous()
    address_of(host, path)
    return Part(spec, _owned(host))


def _load_through_host(tensor: Any, spec: Spec, key: object) -> Part:
    host = torch.empty(tensor.shape, dtype=tensor.dtype)

    def after() -> None:
        with torch.no_grad():
            tensor.copy_(host)

    return Part(spec, _owned(host), after=after, key=key)


def _owned(host: Any) -> Any:
    """The bytes of a contiguous tensor on the host, which live as long as the array."""
    return host.reshape(-1).view(torch.uint8).numpy()


def _kind(tensor: Any) -> str:
    if tensor.is_quantized:
        return "quantized"
    return "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
