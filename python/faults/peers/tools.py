"""The tools that are compared: how each saves a dict of arrays to a folder, and how it loads it again.

A tool imports its framework when it is made, so that a process that is forked afterwards starts at once. `save_share` is one of two ranks,
each of which holds half of the rows of every array.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Arrays = Mapping[str, Any]


class Tool(Protocol):
    """A way to save."""

    name: str

    def version(self) -> str:
        """The package that is used."""

    def save(self, folder: Path, arrays: Arrays) -> None:
        """Saves, over what is there, and returns when the tool says that all is safe."""

    def load(self, folder: Path, like: Arrays) -> Arrays:
        """Loads arrays of the names and shapes of ``like``."""

    def save_share(self, folder: Path, arrays: Arrays, rank: int, port: int) -> None:
        """Saves together with another rank. Calls ``meet`` of the harness when both are joined."""


def _half(array: Any, rank: int) -> Any:
    rows = len(array) // 2
    return array[rank * rows : (rank + 1) * rows]


class Cairn:
    """Cairn: one step that is replaced."""

    name = "Cairn"

    def __init__(self) -> None:
        import cairn

        self.cairn = cairn

    def version(self) -> str:
        return f"cairn-checkpoint {self.cairn.__version__}"

    def save(self, folder: Path, arrays: Arrays) -> None:
        self.cairn.Checkpointer(folder).save(1, dict(arrays), replace=True, blocking=True)

    def load(self, folder: Path, like: Arrays) -> Arrays:
        target = {name: np.zeros_like(array) for name, array in like.items()}
        self.cairn.Checkpointer(folder).load(into=target)
        return target

    def save_share(self, folder: Path, arrays: Arrays, rank: int, port: int) -> None:
        sharded = _dtensors(arrays, rank, port)
        meet(rank)
        self.cairn.Checkpointer(folder, commit_timeout=10.0).save(1, sharded, blocking=True)


class Dcp:
    """PyTorch's distributed checkpoint, as its tutorial calls it."""

    name = "PyTorch DCP `save`"
    threads = 1

    def __init__(self) -> None:
        import torch
        import torch.distributed.checkpoint as dcp

        self.torch, self.dcp = torch, dcp

    def version(self) -> str:
        return f"torch {version('torch')}"

    def save(self, folder: Path, arrays: Arrays) -> None:
        state = {name: self.torch.from_numpy(array) for name, array in arrays.items()}
        self.dcp.save(state, storage_writer=self._writer(folder), no_dist=True)

    def _writer(self, folder: Path) -> Any:
        return self.dcp.FileSystemWriter(folder, thread_count=self.threads)

    def load(self, folder: Path, like: Arrays) -> Arrays:
        state = {name: self.torch.zeros(array.shape) for name, array in like.items()}
        self.dcp.load(state, checkpoint_id=folder, no_dist=True)
        return {name: tensor.numpy() for name, tensor in state.items()}

    def save_share(self, folder: Path, arrays: Arrays, rank: int, port: int) -> None:
        sharded = _dtensors(arrays, rank, port)
        meet(rank)
        self.dcp.save(sharded, checkpoint_id=folder)


class DcpThreads(Dcp):
    """The same with two writer threads, which its documentation advises for speed."""

    name = "PyTorch DCP `save`, 2 threads"
    threads = 2


class DcpAsync(Dcp):
    """The same in the background, waiting for the future."""

    name = "PyTorch DCP `async_save`"

    def save(self, folder: Path, arrays: Arrays) -> None:
        if not self.torch.distributed.is_initialized():
            store = self.torch.distributed.HashStore()
            self.torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        state = {name: self.torch.from_numpy(array) for name, array in arrays.items()}
        self.dcp.async_save(state, checkpoint_id=folder).result()

    def save_share(self, folder: Path, arrays: Arrays, rank: int, port: int) -> None:
        sharded = _dtensors(arrays, rank, port)
        meet(rank)
        self.dcp.async_save(sharded, checkpoint_id=folder).result()


def _dtensors(arrays: Arrays, rank: int, port: int) -> dict[str, Any]:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    halves = {name: torch.from_numpy(_half(array, rank).copy()) for name, array in arrays.items()}
    return {name: DTensor.from_local(half, mesh, [Shard(0)]) for name, half in halves.items()}


class TorchCheckpointing:
    """Meta's torch_checkpointing, saving in the foreground: in the background it needs CUDA."""

    name = "torch_checkpointing"

    def __init__(self) -> None:
        import torch
        import torch_checkpointing

        self.torch, self.module = torch, torch_checkpointing

    def version(self) -> str:
        return f"torch_checkpointing {version('torch_checkpointing')}"

    def _manager(self) -> Any:
        from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig

        # The default, direct I/O, is refused by many file systems for sizes that are not whole blocks.
        storage = LocalFileSystemStorageConfig(use_direct_io=False)
        save = self.module.SyncCheckpointSaverConfig()
        return self.module.CheckpointManager.Config(save=save, storage_config=storage).build()

    def save(self, folder: Path, arrays: Arrays) -> None:
        state = {name: self.torch.from_numpy(array) for name, array in arrays.items()}
        self._manager().save(str(folder), {"model": state})

    def load(self, folder: Path, like: Arrays) -> Arrays:
        state = {name: self.torch.zeros(array.shape) for name, array in like.items()}
        loaded = self._manager().load(str(folder), into={"model": state}, strict=True)["model"]
        return {name: tensor.numpy() for name, tensor in loaded.items()}

    def save_share(self, folder: Path, arrays: Arrays, rank: int, port: int) -> None:
        sharded = _dtensors(arrays, rank, port)
        manager = self._manager()
        meet(rank)
        manager.save(str(folder), {"model": sharded})


class PaddleFlex:
    """Paddle's flex checkpoint."""

    name = "Paddle flex checkpoint"

    def __init__(self) -> None:
        import paddle
        import paddle.distributed

        self.paddle = paddle

    def version(self) -> str:
        return f"paddlepaddle {version('paddlepaddle')}"

    def save(self, folder: Path, arrays: Arrays) -> None:
        state = {name: self.paddle.to_tensor(array) for name, array in arrays.items()}
        self.paddle.distributed.save_state_dict(state, str(folder))

    def load(self, folder: Path, like: Arrays) -> Arrays:
        state = {name: self.paddle.zeros(array.shape) for name, array in like.items()}
        self.paddle.distributed.load_state_dict(state, str(folder))
        return {name: tensor.numpy() for name, tensor in state.items()}

    def save_share(self, folder: Path, arrays: Arrays, rank: int, port: int) -> None:
        dist = self.paddle.distributed
        ends = [f"127.0.0.1:{port + 1 + each}" for each in range(2)]
        os.environ |= {
            "PADDLE_MASTER": f"127.0.0.1:{port}",
            "PADDLE_TRAINER_ID": str(rank),
            "PADDLE_TRAINERS_NUM": "2",
            "PADDLE_TRAINER_ENDPOINTS": ",".join(ends),
            "PADDLE_CURRENT_ENDPOINT": ends[rank],
            "PADDLE_DISTRI_BACKEND": "gloo",
        }
        self.paddle.set_device("cpu")
        dist.init_parallel_env()
        mesh = dist.ProcessMesh([0, 1], dim_names=["x"])
        state = {
            name: dist.shard_tensor(self.paddle.to_tensor(array), mesh, [dist.Shard(0)]) for name, array in arrays.items()
        }
        meet(rank)
        dist.save_state_dict(state, str(folder))


class Orbax:
    """Orbax's checkpointer of one folder."""

    name = "Orbax"

    def __init__(self) -> None:
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax
        import orbax.checkpoint

        self.jax, self.orbax = jax, orbax.checkpoint

    def version(self) -> str:
        return f"orbax-checkpoint {version('orbax-checkpoint')}, jax {version('jax')}"

    def save(self, folder: Path, arrays: Arrays) -> None:
        state = {name: self.jax.numpy.asarray(array) for name, array in arrays.items()}
        with self.orbax.StandardCheckpointer() as checkpointer:
            checkpointer.save(folder, state, force=True)

    def load(self, folder: Path, like: Arrays) -> Arrays:
        shapes = {name: self.jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in like.items()}
        with self.orbax.StandardCheckpointer() as checkpointer:
            return {name: np.asarray(array) for name, array in checkpointer.restore(folder, shapes).items()}

    def save_share(self, folder: Path, arrays: Arrays, rank: int, port: int) -> None:
        jax = self.jax
        jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
        sharding = jax.sharding.NamedSharding(jax.make_mesh((2,), ("x",)), jax.sharding.PartitionSpec("x"))
        state = {name: jax.make_array_from_process_local_data(sharding, _half(array, rank)) for name, array in arrays.items()}
        meet(rank)
        with self.orbax.StandardCheckpointer() as checkpointer:
            checkpointer.save(folder, state)


TOOLS = {
    "cairn": Cairn,
    "dcp": Dcp,
    "dcp-threads": DcpThreads,
    "dcp-async": DcpAsync,
    "torch-checkpointing": TorchCheckpointing,
    "paddle": PaddleFlex,
    "orbax": Orbax,
}


def meet(rank: int) -> None:
    """Is called by each rank when all of them have found each other; the harness puts its own in place."""
