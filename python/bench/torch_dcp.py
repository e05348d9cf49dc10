"""The same state through torch.distributed.checkpoint: N processes on gloo, every tensor sharded along dim 0."""

import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from common import REPEATS, arguments, drop_cache, fill, report, seconds, state_bytes, tensors

ROWS = "dim 0"
COLUMNS = "dim 1"


def local_shape(shape, split, ranks):
    """The shape and placement of one rank's shard; vectors have no second dim and stay whole."""
    if split == ROWS:
        return (shape[0] // ranks, *shape[1:]), Shard(0)
    if len(shape) > 1:
        return (shape[0], shape[1] // ranks), Shard(1)
    return shape, Replicate()


class Rank:
    """One process of the group, with its shards of the state."""

    def __init__(self, rank, ranks, directory, size_bytes):
        torch.set_num_threads(1)
        rendezvous = directory / "rendezvous"
        dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=ranks)
        self.rank, self.ranks = rank, ranks
        self.checkpoint = directory / "dcp"
        self.mesh = init_device_mesh("cpu", (ranks,))
        self.specification = tensors(size_bytes)
        self.state = self.sharded(ROWS, lambda shape, dtype, seed: fill(shape, dtype, seed * ranks + rank))

    def sharded(self, split, make):
        """This rank's shards of the whole state, each made by `make`."""
        state = {}
        for seed, (name, (shape, dtype)) in enumerate(self.specification.items()):
            shape, placement = local_shape(shape, split, self.ranks)
            state[name] = DTensor.from_local(make(shape, dtype, seed), self.mesh, [placement])
        return state

    def alone(self, work):
        """Something only the first rank does, while the others wait."""
        if self.rank == 0:
            work()
        dist.barrier()

    def timed(self, work):
        """How long all ranks together take."""
        dist.barrier()
        return seconds(lambda: (work(), dist.barrier()))

    def save(self):
        self.alone(lambda: shutil.rmtree(self.checkpoint, ignore_errors=True))
        return self.timed(lambda: dcp.save(self.state, checkpoint_id=self.checkpoint))

    def load(self, split):
        """Cold, into zeros, and compared with what was saved."""
        target = self.sharded(split, lambda shape, dtype, _: torch.zeros(shape, dtype=dtype))
        self.alone(lambda: drop_cache(self.checkpoint))
        elapsed = self.timed(lambda: dcp.load(target, checkpoint_id=self.checkpoint))
        for name, tensor in target.items():
            saved = self.state[name].redistribute(placements=tensor.placements)
            assert torch.equal(tensor.to_local(), saved.to_local()), name
        return elapsed

    def stall(self):
        """How long an asynchronous save keeps the caller; the rest of it is not counted."""
        self.alone(lambda: shutil.rmtree(self.checkpoint, ignore_errors=True))
        saving = []
        elapsed = self.timed(lambda: saving.append(dcp.async_save(self.state, checkpoint_id=self.checkpoint)))
        saving[0].result()
        dist.barrier()
        return elapsed

    def measure(self):
        """Runs every phase; the first rank prints it."""
        phases = [
            ("save", "write", self.save),
            ("load", "read", lambda: self.load(ROWS)),
            ("load, resharded", "read", lambda: self.load(COLUMNS)),
            ("stall of async save", None, self.stall),
        ]
        total = state_bytes(self.specification)
        for phase, direction, work in phases:
            timings = [work() for _ in range(REPEATS)]
            if self.rank == 0:
                report("torch DCP", phase, direction, total, timings)


def process(rank, ranks, directory, size_bytes):
    Rank(rank, ranks, directory, size_bytes).measure()
    dist.barrier()
    dist.destroy_process_group()


def main():
    directory, size_bytes, ranks = arguments()
    if any(length % ranks for shape, _ in tensors(0).values() for length in shape):
        raise SystemExit(f"error: the tensors do not divide by {ranks} ranks")
    directory = directory / "torch"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    torch.multiprocessing.spawn(process, (ranks, directory, size_bytes), nprocs=ranks)
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
