"""The random-number generators of this process, as something that can be saved."""

from __future__ import annotations

import random
import sys
from typing import Any

from ._part import PerRank
from .errors import StateError


class Rng:
    """Python's, numpy's and torch's generators (CUDA's, too) of this rank, by value.

    >>> checkpointer.save(step, {"model": model, "rng": cairn.Rng()})

    Only generators of packages that are imported are saved. A rank that did not exist when the checkpoint was saved keeps its own.

    Paddle's generators have states that can only be pickled, so they are not saved. Where they are in use a save is refused, unless
    ``paddle=False`` says that they are left out: seed them anew after a load.
    """

    def __init__(self, *, paddle: bool = True) -> None:
        self._refuses_paddle = paddle

    def state_dict(self) -> PerRank:
        """The state of every generator, as this rank's own value.

        Raises:
            StateError: if Paddle's generators are in use.
        """
        used = _paddle_in_use() if self._refuses_paddle else None
        if used is not None:
            raise StateError(
                f"{used} would be left out of `cairn.Rng()`: its state can only be pickled",
                hint="leave it out knowingly, `cairn.Rng(paddle=False)`, and seed it anew after a load: `paddle.seed(seed + step)`",
            )
        state: dict[str, Any] = {"python": random.getstate()}
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy is not None:
            state["numpy"] = numpy.random.get_state()
        if torch is not None:
            state["torch"] = torch.get_rng_state().numpy().tobytes()
            if torch.cuda.is_initialized():
                state["cuda"] = [device.numpy().tobytes() for device in torch.cuda.get_rng_state_all()]
        return PerRank(state)

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Puts every generator that was saved back."""
        if not state:
            return
        random.setstate(state["python"])
        if "numpy" in state:
            import numpy

            numpy.random.set_state(state["numpy"])
        if "torch" in state:
            import torch

            torch.set_rng_state(_tensor(torch, state["torch"]))
            for device, saved in enumerate(state.get("cuda", [])[: torch.cuda.device_count()]):
                torch.cuda.set_rng_state(_tensor(torch, saved), device)


def _tensor(torch: Any, raw: bytes) -> Any:
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)


#: How many numbers Paddle's generator on the CPU has ahead when it is seeded.
_UNTOUCHED = "312"


def _paddle_in_use() -> str | None:
    """The generator of Paddle that something was drawn from, or that will be; ``None`` if it is only imported."""
    paddle: Any = sys.modules.get("paddle")
    if paddle is None or not hasattr(paddle, "get_device"):
        return None
    tracker: Any = sys.modules.get("paddle.distributed.fleet.layers.mpu.random")
    if tracker is not None and tracker.get_rng_state_tracker().states_:
        return "the generators that fleet tracks for tensor parallelism"
    is_drawn = str(paddle.base.core.default_cpu_generator().get_state()).split()[-1] != _UNTOUCHED
    return "Paddle's generator" if is_drawn or not paddle.get_device().startswith("cpu") else None
