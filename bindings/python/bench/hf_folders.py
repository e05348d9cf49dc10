"""A Hugging Face folder into sharded targets, and DCP and sharded folders out to it, beside the tools people use for it.

Each contender runs in a process of its own, which also gives its peak memory.
"""

import json
import math
import shutil
import subprocess
import sys
import time
from pathlib import Path

from harness import ROUNDS, median, ratio, rotated, value

from common import arguments, drop_cache, fill, state_bytes, tensors

RANKS = 4
# The files that a sharded folder is consolidated into.
FILES = 4


def model(size_bytes):
    """The bf16 weights of a model of about `size_bytes`."""
    return {name: shape for name, (shape, _) in tensors(size_bytes * 7).items() if name.startswith("model.")}


def write_hf(folder, size_bytes):
    import torch
    from safetensors.torch import save_file

    names = {name: fill(shape, torch.bfloat16, seed) for seed, (name, shape) in enumerate(model(size_bytes).items())}
    folder.mkdir(parents=True)
    save_file(names, folder / "model.safetensors", metadata={"format": "pt"})


def write_dcp(folder, size_bytes):
    import torch
    import torch.distributed.checkpoint as dcp

    names = {name: fill(shape, torch.bfloat16, seed) for seed, (name, shape) in enumerate(model(size_bytes).items())}
    dcp.save(names, checkpoint_id=folder, no_dist=True)


def write_shards(folder, size_bytes):
    """The same weights, saved by torch for Hugging Face from several ranks: every file holds some rows of every tensor."""
    import torch.multiprocessing

    torch.multiprocessing.spawn(save_shards, (folder, size_bytes), nprocs=RANKS)


def save_shards(rank, folder, size_bytes):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    dist.init_process_group("gloo", init_method=f"file://{folder}.meeting", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    names = {}
    for seed, (name, shape) in enumerate(model(size_bytes).items()):
        rows = fill(shape, torch.bfloat16, seed).chunk(RANKS)[rank].clone()
        names[name] = DTensor.from_local(rows, mesh, [Shard(0)])
    dcp.save(names, storage_writer=dcp.HuggingFaceStorageWriter(str(folder), save_distributed=True))
    dist.destroy_process_group()


def file_numbers(names):
    """Tensors dealt in order to as many files, numbered from 1."""
    return {name: 1 + at * FILES // len(names) for at, name in enumerate(names)}


def columns(shape):
    """Rank 1's columns of a tensor that is split along its last dim."""
    width = shape[-1] // RANKS
    return (*[slice(None)] * (len(shape) - 1), slice(width, 2 * width))


def cairn_sharded(source):
    """One rank's shards, straight from the file."""
    import cairn

    opened = cairn.open(source)
    return {name: opened[name][columns(opened[name].shape)] for name in opened}


def cairn_targets(source):
    """One rank's shards as one load into prepared tensors."""
    import cairn
    import torch
    from cairn.torch import Shards

    opened = cairn.open(source)
    into = {}
    for name in opened:
        shape = opened[name].shape
        width = shape[-1] // RANKS
        local = torch.empty(*shape[:-1], width, dtype=torch.bfloat16)
        into[name] = Shards(shape, [(local, (*[0] * (len(shape) - 1), width))])
    opened.load(into, strict="partial")
    return into


def stock_sharded(source):
    """The usual way: load the file, cut the slices out."""
    from safetensors.torch import load_file

    whole = load_file(source / "model.safetensors")
    return {name: tensor[columns(tensor.shape)].contiguous() for name, tensor in whole.items()}


def cairn_export(source, target):
    import cairn

    cairn.open(source).export_hf(target, memory_bytes=256 << 20)


def dcp_to_torch(source, target):
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    target.mkdir()
    dcp_to_torch_save(source, target / "model.pt")


def cairn_consolidate(source, target):
    import cairn

    opened = cairn.open(source)
    len_bytes = sum(2 * math.prod(opened[name].shape) for name in opened)
    opened.export_hf(target, max_shard_size=len_bytes // FILES, memory_bytes=256 << 20)


def torch_consolidate(source, target):
    from safetensors import safe_open
    from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files

    with safe_open(next(source.glob("*.safetensors")), "pt") as file:
        numbers = file_numbers(list(file.keys()))
    target.mkdir()
    consolidate_safetensors_files(str(source), str(target), numbers, num_threads=FILES)


def contender(name, *arguments):
    """Runs one contender in a fresh process; returns its seconds and the memory it took beyond its imports."""
    command = [sys.executable, __file__, "--one", name, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return found["seconds"], found["memory_bytes"]


def one(name, *arguments):
    import torch  # noqa: F401 - imported by everybody, so it does not count

    import cairn  # noqa: F401
    import safetensors.torch  # noqa: F401

    before = peak_bytes()
    start = time.perf_counter()
    kept = globals()[name](*map(Path, arguments))
    elapsed = time.perf_counter() - start
    peak = peak_bytes()
    del kept
    print(json.dumps({"seconds": elapsed, "memory_bytes": peak - before}))


def peak_bytes():
    """The most memory this process has had. Not `getrusage`, which starts with what the parent had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise SystemExit("error: this system does not tell a process's peak memory")


def main():
    directory, size_bytes, _ = arguments()
    directory = directory / "hf-folders"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    memory = {}

    def timed(name, *arguments):
        def work():
            elapsed, memory[name] = contender(name, *arguments)
            return elapsed

        return work

    write_hf(directory / "hf", size_bytes)
    reads = {name: timed(name, directory / "hf") for name in ("cairn_targets", "stock_sharded")}
    found = rotated(reads, ROUNDS, lambda _: drop_cache(directory / "hf"))
    faster = ratio(found["stock_sharded"], found["cairn_targets"])
    value("HF folder to one of 4 shards over load_file and slicing", faster, "×", at_least=1.5)
    share = memory["cairn_targets"] / memory["stock_sharded"]
    value("memory of that, over load_file and slicing", share, "×", at_most=0.5)

    def exported(source, *names):
        """The seconds of each contender that writes what is in `source` anew."""
        out = {name: directory / f"out-{name}" for name in names}

        def clean(name):
            shutil.rmtree(out[name], ignore_errors=True)
            drop_cache(source)

        found = rotated({name: timed(name, source, out[name]) for name in names}, ROUNDS, clean)
        for folder in [source, *out.values()]:
            shutil.rmtree(folder)
        return found

    write_dcp(directory / "dcp", size_bytes)
    found = exported(directory / "dcp", "cairn_export", "dcp_to_torch")
    faster = ratio(found["dcp_to_torch"], found["cairn_export"])
    value("export of DCP to HF over dcp_to_torch_save", faster, "×", at_least=10.0)
    value("memory of that export", memory["cairn_export"] / 1e6, "MB", at_most=512.0)
    value("memory of dcp_to_torch_save", memory["dcp_to_torch"] / 1e6, "MB")
    total = sum(2 * state_bytes({name: (shape, _U8)}) for name, shape in model(size_bytes).items())
    value("bytes of the model moved", total / 1e9, "GB")
    value("seconds of our export", median(found["cairn_export"]), "s")

    write_shards(directory / "shards", size_bytes)
    found = exported(directory / "shards", "cairn_consolidate", "torch_consolidate")
    faster = ratio(found["torch_consolidate"], found["cairn_consolidate"])
    value("shards to HF over consolidate_safetensors_files", faster, "×")
    value("memory of that", memory["cairn_consolidate"] / 1e6, "MB", at_most=512.0)
    value("memory of consolidate_safetensors_files", memory["torch_consolidate"] / 1e6, "MB")
    shutil.rmtree(directory)


class _U8:
    itemsize = 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(*sys.argv[2:])
    else:
        main()
