"""Data files seen by the safetensors package, which knows nothing of Cairn."""

import torch
from safetensors import safe_open

from cairn_reader import read_entries

# Element types that NumPy itself has.
NUMPY_TYPES = {"u8", "i16", "i64", "f16", "f32", "f64"}


def assert_stock_safetensors_reads(path):
    """Every entry of a data file opens in PyTorch, and in NumPy where it has the type, with the same bytes."""
    entries = {name: (dtype, data) for name, dtype, _, data in read_entries(path.read_bytes())}
    with safe_open(path, framework="pt") as file:
        assert set(file.keys()) == set(entries)
        for name, (_, data) in entries.items():
            assert file.get_tensor(name).reshape(-1).view(torch.uint8).numpy().tobytes() == data, name
    with safe_open(path, framework="np") as file:
        for name, (dtype, data) in entries.items():
            if dtype in NUMPY_TYPES:
                assert file.get_tensor(name).tobytes() == data, name
