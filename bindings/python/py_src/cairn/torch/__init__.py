"""PyTorch's tensors, modules and optimizers as state that Cairn can keep.

Nothing here has to be imported: put modules, optimizers and tensors into the state, and they are understood.

>>> checkpointer.save(step, {"model": model, "optim": optimizer, "schedule": scheduler, "rng": cairn.Rng()})

* A ``DTensor`` is stored with its mesh and placements, so it loads on any other ones (FSDP2, HSDP, TP and mixtures of them).
* A plain tensor counts as the same on all ranks, and is written once.
* A module is its ``state_dict``; wrappers (DDP, ``torch.compile``, activation checkpointing) leave no trace in the names.
* An optimizer's state is named after its parameters, ``optim.state.layers.0.weight.exp_avg``, so neither the order of
  parameters nor their groups matter. A fresh optimizer is given its state without taking a step.
* A :class:`torch.Generator` belongs to its rank.

:class:`Shards` is for what torch has no type for: one tensor of which this rank holds some boxes.
"""

from ._shards import Shards

__all__ = ["Shards"]
