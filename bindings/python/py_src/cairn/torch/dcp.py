"""Cairn as the storage of ``torch.distributed.checkpoint``: one changed argument, and nothing is pickled.

>>> import torch.distributed.checkpoint as dcp
>>> from cairn.torch.dcp import Reader, Writer
>>> dcp.save(state_dict, storage_writer=Writer("checkpoints/100"))
>>> dcp.async_save(state_dict, storage_writer=Writer("checkpoints/100"))
>>> dcp.load(state_dict, storage_reader=Reader("checkpoints/100"))

Planners, stagers, ``get_state_dict`` and the rest of DCP work as before. What is on disk is a Cairn run: checksummed, committed
by one atomic step, and readable with ``cairn.open`` and the ``cairn`` command as well.
"""

from ._dcp_reader import Reader
from ._dcp_writer import Writer

__all__ = ["Reader", "Writer"]
