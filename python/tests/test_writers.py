"""Writers follow docs/format.md: what lies in each data file, and in which order, is worked out again from the page."""

import hashlib
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from cairn_layout import layout_hash, writer_entries
from cairn_reader import newest_step, unseal

GOLDEN = Path(__file__).parents[2] / "tests/fixtures/format-v1/run"


def header(path):
    """The members of a data file's header in file order, with the bytes it stands in."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:start]), data[8:start]


def assert_follows_the_page(step):
    manifest = unseal("COMMIT", (step / "COMMIT").read_bytes(), "manifest")
    for writer in range(manifest["writers"]):
        path = step / manifest["attempt"] / f"{writer:05}"
        part = unseal(path, path.with_suffix(".part").read_bytes().splitlines(keepends=True)[0], "part")
        assert part["layout"] == layout_hash(manifest, writer)
        expected = writer_entries(manifest, writer)
        if not expected:
            assert part["file"] is None
            continue
        entries, text = header(path.with_suffix(".safetensors"))
        assert entries.pop("__metadata__") == {"format": "pt"}
        assert list(entries) == list(expected)
        assert {name: entry["data_offsets"] for name, entry in entries.items()} == expected
        compact = json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False).encode()
        assert text == compact.ljust(-(-(8 + len(compact)) // 4096) * 4096 - 8)


def test_the_golden_run_follows_the_page():
    for step in GOLDEN.iterdir():
        assert_follows_the_page(step)


def test_attempts_are_named_after_launch_step_and_count():
    for step, number in [(GOLDEN / "step-00000003", 3), (GOLDEN / "step-00000012", 12)]:
        name = hashlib.sha256(f"golden\n{number}\n0".encode()).hexdigest()[:16]
        assert (step / name).is_dir()


def test_tensors_large_enough_to_be_cut_follow_the_page(cairn, tmp_path):
    tensors = {
        "bias": torch.zeros(1000),
        "column": torch.zeros(300_001, 1),
        "emb": torch.zeros(3001, 1024, dtype=torch.bfloat16),
        "flat": torch.zeros(1_300_001, dtype=torch.int8),
        "norm": torch.zeros(1024),
        "one.long.row": torch.zeros(1, 1, 1_500_000),
        "rows.over.4.mib": torch.zeros(3, 1_100_000),
        "small": torch.zeros(1000, 250),  # Just too small to be cut.
        "split": torch.zeros(1000, 1501),
        "three.dims": torch.zeros(1, 5, 130_000, dtype=torch.float16),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    # Along dp=40 a share is smaller than most tensors: each is cut somewhere.
    for mesh, rule in [("dp=40", "split=-"), ("dp=2,tp=2", "split=-,tp"), ("dp=4,pp=1", "split=pp,dp")]:
        run = tmp_path / mesh
        cairn.run("reshard", tmp_path / "model.safetensors", run, "--mesh", mesh, "--shard", rule)
        assert_follows_the_page(newest_step(run))
