"""A sharded training state through Cairn and through torch DCP, by processes on gloo, in the same rounds as the raw disk."""

import gc
import shutil

import cairn
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from harness import ROUNDS, aligned, median, paired, ratio, raw_read, raw_write, rotated, seconds, value
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from common import arguments, drop_cache, fill, state_bytes, tensors

ROWS, COLUMNS = "dim 0", "dim 1"


class Rank:
    """One process of the group, with its shards of the state."""

    def __init__(self, rank, ranks, directory, size_bytes):
        torch.set_num_threads(1)
        rendezvous = directory / f"rendezvous-{ranks}"
        dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=ranks)
        self.rank, self.ranks, self.directory = rank, ranks, directory
        self.mesh = init_device_mesh("cpu", (ranks,))
        self.specification = tensors(size_bytes)
        self.total = state_bytes(self.specification)
        self.state = self.sharded(ROWS, lambda shape, dtype, seed: fill(shape, dtype, seed * ranks + rank))
        self.own_bytes = sum(tensor.to_local().nbytes for tensor in self.state.values())
        self.buffer = aligned()
        self.checkpointer = cairn.Checkpointer(directory / "cairn")
        self.step = 0
        self.reads = []

    def sharded(self, split, make):
        """This rank's shards of the whole state, each made by `make`."""
        state = {}
        for seed, (name, (shape, dtype)) in enumerate(self.specification.items()):
            placement = Shard(0) if split == ROWS else Shard(1) if len(shape) > 1 else Replicate()
            local = list(shape)
            if placement.is_shard():
                local[placement.dim] //= self.ranks
            state[name] = DTensor.from_local(make(local, dtype, seed), self.mesh, [placement], run_check=False)
        return state

    def timed(self, work):
        """How long all ranks together take."""
        dist.barrier()
        return seconds(lambda: (work(), dist.barrier()))

    def alone(self, work):
        """Something only the first rank does, while the others wait."""
        if self.rank == 0:
            work()
        dist.barrier()

    def cairn_save(self):
        self.step += 1
        return self.timed(lambda: self.checkpointer.save(self.step, self.state).wait())

    def dcp_save(self):
        return self.timed(lambda: dcp.save(self.state, checkpoint_id=self.directory / "dcp"))

    def disk_write(self):
        return self.timed(lambda: raw_write(self.directory / f"raw-{self.rank}", self.own_bytes, self.buffer))

    def tidy(self, name):
        """Old files go before each save, outside the clock; the page cache goes before each load."""

        def remove():
            for old in self.directory.glob({"cairn": "cairn/step-*", "dcp": "dcp", "disk": "raw-*"}[name]):
                shutil.rmtree(old) if old.is_dir() else old.unlink()

        self.alone(remove)

    def forget(self, name):
        folder = {"cairn": "cairn", "dcp": "dcp"}.get(name)
        if folder:
            self.alone(lambda: drop_cache(self.directory / folder))

    def load(self, split, read):
        """Cold, into zeros, and compared with what was saved."""
        target = self.sharded(split, lambda shape, dtype, _: torch.zeros(shape, dtype=dtype))
        elapsed = self.timed(lambda: read(target))
        for name, tensor in target.items():
            saved = self.state[name].redistribute(placements=tensor.placements)
            assert torch.equal(tensor.to_local(), saved.to_local()), name
        del target
        gc.collect()
        return elapsed

    def cairn_read(self, target):
        self.reads.append(self.checkpointer.load(self.step, into=target).read_bytes)

    def dcp_read(self, target):
        dcp.load(target, checkpoint_id=self.directory / "dcp")

    def disk_read(self):
        return self.timed(lambda: raw_read(self.directory / f"raw-{self.rank}", self.buffer))

    def over_read(self):
        """Bytes that all ranks read for each byte of the state, in the last load."""
        read = torch.tensor([self.reads[-1]], dtype=torch.int64)
        dist.all_reduce(read)
        return read.item() / self.total

    def stall(self):
        """How long `save` keeps its caller, beside one copy of the rank's bytes to memory that is warm."""
        sources = [tensor.to_local() for tensor in self.state.values()]
        targets = [torch.empty_like(tensor).fill_(0) for tensor in sources]

        def copy():
            for source, target in zip(sources, targets, strict=True):
                target.copy_(source)

        stalls, copies = [], []
        for _ in range(ROUNDS + 1):
            copies.append(self.timed(copy))
            self.step += 1
            saving = []
            stalls.append(self.timed(lambda: saving.append(self.checkpointer.save(self.step, self.state))))
            saving[0].wait()
            dist.barrier()  # a rank that still waits for the commit must not find it deleted
            self.tidy("cairn")
        return median([stall / copy for stall, copy in zip(stalls[1:], copies[1:], strict=True)])

    def measure(self):
        """Runs every phase; the first rank prints it."""
        label = f"{self.ranks} ranks"
        saves = {"disk": self.disk_write, "cairn": self.cairn_save, "dcp": self.dcp_save}
        found = rotated(saves, ROUNDS, self.tidy)
        if self.rank == 0:
            paired(f"durable save, {label}", "write", self.total, found["cairn"], found["disk"], at_least=0.85)
            value(f"durable save over dcp.save, {label}", ratio(found["dcp"], found["cairn"]), "×", at_least=3.0)
        for phase, split, rival in [("load, same layout", ROWS, 2.0), ("load, dim 0 to dim 1", COLUMNS, 3.0)]:
            loads = {
                "disk": self.disk_read,
                "cairn": lambda split=split: self.load(split, self.cairn_read),
                "dcp": lambda split=split: self.load(split, self.dcp_read),
            }
            found = rotated(loads, ROUNDS, self.forget)
            over_read = self.over_read()
            if self.rank == 0:
                paired(f"{phase}, {label}", "read", self.total, found["cairn"], found["disk"])
                value(f"{phase} over dcp.load, {label}", ratio(found["dcp"], found["cairn"]), "×", at_least=rival)
                value(f"{phase}, bytes read over needed, {label}", over_read, "×", at_most=1.05)
        stall = self.stall()
        if self.rank == 0:
            value(f"stall of save over one copy, {label}", stall, "×", at_most=1.1)


def process(rank, ranks, directory, size_bytes):
    Rank(rank, ranks, directory, size_bytes).measure()
    dist.barrier()
    dist.destroy_process_group()


def main():
    directory, size_bytes, ranks = arguments()
    directory = directory / "torch-ranks"
    for count in sorted({2, ranks}):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        torch.multiprocessing.spawn(process, (count, directory, size_bytes), nprocs=count)
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
