"""The random-number generators of this process, as something that can be saved."""

from __future__ import annotations

import random
import sys
from typing import Any

from ._part import PerRank


class Rng:
    """Python's, numpy's and torch's generators (CUDA's, too) of this rank, by value.

    >>> checkpointer.save(step, {"model": model, "rng": cairn.Rng()})

    Only generators of packages that are imported are saved. A rank that did not exist when the checkpoint was saved keeps its own.
    """

    def state_dict(self) -> PerRank:
        """The state of every generator, as this rank's own value."""
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
