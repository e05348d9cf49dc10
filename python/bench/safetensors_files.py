"""The same state through safetensors: one process, one file."""

import os

import torch
from safetensors.torch import load_file, save_file

from common import REPEATS, arguments, drop_cache, fill, report, seconds, state_bytes, tensors

PAGE_BYTES = 4096


def save(state, path):
    save_file(state, path)


def save_durably(state, path):
    save_file(state, path)
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def load(path):
    """Touches every page: the tensors may be views of a file that is not read yet."""
    for tensor in load_file(path).values():
        tensor.view(-1).view(torch.uint8)[::PAGE_BYTES].sum()


def main():
    directory, size_bytes, _ = arguments()
    specification = tensors(size_bytes)
    state = {name: fill(shape, dtype, seed) for seed, (name, (shape, dtype)) in enumerate(specification.items())}
    path = directory / "state.safetensors"
    total = state_bytes(specification)

    def fresh(work):
        path.unlink(missing_ok=True)
        return seconds(lambda: work(state, path))

    def cold():
        drop_cache(path)
        return seconds(lambda: load(path))

    report("safetensors", "save, no fsync", "write", total, [fresh(save) for _ in range(REPEATS)])
    report("safetensors", "save, fsync", "write", total, [fresh(save_durably) for _ in range(REPEATS)])
    report("safetensors", "load", "read", total, [cold() for _ in range(REPEATS)])
    loaded = load_file(path)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())
    path.unlink()


if __name__ == "__main__":
    main()
