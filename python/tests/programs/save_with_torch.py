"""Saves the same sharded state in every way that torch's distributed checkpoints know; run by four processes."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemWriter, HuggingFaceStorageWriter
from torch.distributed.checkpoint.filesystem import SerializationFormat
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def whole_tensors():
    """Sizes that do not divide by four, fewer rows than ranks, a transposed tensor."""
    random = torch.Generator().manual_seed(0)
    return {
        "rows": torch.randn(7, 5, generator=random),
        "columns": torch.randn(6, 10, generator=random).bfloat16(),
        "everywhere": torch.randn(3, 3, generator=random),
        "both": torch.randn(5, 7, generator=random),
        "few": torch.randn(2, 3, generator=random),
    }


def main():
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    line, square = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2))
    whole = whole_tensors()
    weights = {
        "rows": distribute_tensor(whole["rows"], line, [Shard(0)]),
        "columns": distribute_tensor(whole["columns"], line, [Shard(1)]),
        "everywhere": distribute_tensor(whole["everywhere"], line, [Replicate()]),
        "both": distribute_tensor(whole["both"], square, [Shard(0), Shard(1)]),
        "few": distribute_tensor(whole["few"], line, [Shard(0)]),
    }
    state = {"model": weights, "step": 11, "groups": [{"lr": 0.5}]}
    dcp.save(state, checkpoint_id=folder / "plain")
    dcp.save(state, storage_writer=FileSystemWriter(folder / "threads", thread_count=2))
    dcp.save(state, storage_writer=FileSystemWriter(folder / "items", single_file_per_rank=False))
    dcp.save(state, checkpoint_id=folder / "alone", use_collectives=False)
    safetensors = SerializationFormat.SAFETENSORS
    dcp.save(state, storage_writer=FileSystemWriter(folder / "safetensors", serialization_format=safetensors))
    dcp.save({"model": weights}, storage_writer=HuggingFaceStorageWriter(folder / "hf", save_distributed=True))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
