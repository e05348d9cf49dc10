"""The golden run, read without Cairn: by a plain reader written from docs/format.md, and by stock safetensors."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from cairn_reader import newest_step, read_step
from stock_safetensors import assert_stock_safetensors_reads

GOLDEN = Path(__file__).parents[2] / "tests/fixtures/format-v1/run"
ONE_WRITER, NINE_WRITERS = GOLDEN / "step-00000003", GOLDEN / "step-00000012"
DATA_FILES = sorted(GOLDEN.glob("*/*/*.safetensors"))
NAMES = {folder: f"{folder.parent.parent.name[-2:]}/{folder.name}" for folder in DATA_FILES}

SHAPES = {
    ONE_WRITER: {
        "model.embed.weight": ("bf16", [10, 4]),
        "model.norm.weight": ("f32", [7]),
        "optim.step": ("i64", []),
        "rows.none": ("f32", [0, 4]),
    },
    NINE_WRITERS: {
        "experts.bias": ("i16", [3]),
        "experts.weight": ("f16", [6, 2]),
        'größe/模型 🪨 "\\\n@': ("u8", [3]),
        "mask": ("u8", [9]),
        "model.embed.weight": ("bf16", [10, 4]),
        "model.layers.0.norm.weight": ("f32", [7]),
        "model.layers.0.qkv.weight": ("bf16", [12, 4]),
        "model.layers.1.norm.weight": ("f32", [7]),
        "model.layers.1.qkv.weight": ("bf16", [12, 4]),
        "optim.embed.master": ("f32", [5, 3]),
        "optim.norm.exp_avg": ("f32", [7, 3]),
        "optim.qkv.exp_avg": ("f32", [12, 4]),
        "optim.step": ("i64", []),
        "quant.packed": ("f4", [4, 8]),
        "quant.scale": ("f8_e8m0", [6]),
        "quant.weight": ("f8_e4m3", [6, 5]),
        "rows.few": ("f64", [1, 2]),
        "rows.none": ("f32", [0, 4]),
        "table": ("f32", [10, 4]),
    },
}


def expected(name, step, len_bytes):
    """What the bytes of a golden tensor must be."""
    seed = 7 * step + sum(name.encode())
    return bytes((31 * i + seed) % 251 for i in range(len_bytes))


def reseal(members):
    """A sealed document with other members."""
    members = {name: value for name, value in members.items() if name != "sha256"}
    body = json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode()[:-1]
    return body + b',"sha256":"%s"}\n' % hashlib.sha256(body).hexdigest().encode()


@pytest.mark.parametrize("folder", SHAPES, ids=lambda folder: folder.name)
def test_the_plain_reader_finds_every_tensor_of_the_golden_run(folder):
    manifest, tensors, _ = read_step(folder)
    assert manifest["aliases"] == {"model.head.weight": "model.embed.weight"}
    assert tensors.pop("model.head.weight") is tensors["model.embed.weight"]
    assert {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()} == SHAPES[folder]
    for name, tensor in tensors.items():
        data = tensor.bytes()
        assert data == expected(name, manifest["step"], len(data)), name


def test_the_plain_reader_finds_values_tags_and_assets():
    folder = newest_step(GOLDEN)
    assert folder == NINE_WRITERS
    manifest, _, rank_values = read_step(folder)
    sampler = {"position": 12000, "seeds": [2**64 - 1, -1, None]}
    assert manifest["values"] == {"lr": 0.1, "note": "größe", "sampler": sampler}
    assert manifest["tags"] == ["golden", "größe"]
    assert list(manifest["assets"]) == ["config.json", "tokenizer/vocab.txt"]
    assert rank_values == [{"rng": [rank, 7]} for rank in range(9)]


@pytest.fixture
def copy(tmp_path):
    """A copy of the golden run that a test may damage."""
    return shutil.copytree(GOLDEN, tmp_path / "run")


@pytest.mark.parametrize("file", ["COMMIT", "*/00003.part", "*/00003.safetensors", "*/files/config.json"])
def test_the_plain_reader_notices_a_flipped_bit_anywhere(copy, file):
    [path] = (copy / NINE_WRITERS.name).glob(file)
    good = path.read_bytes()
    for at in range(0, len(good), max(len(good) // 40, 1)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(ValueError):
            read_step(copy / NINE_WRITERS.name)


@pytest.mark.parametrize("path", DATA_FILES, ids=NAMES.get)
def test_stock_safetensors_opens_every_data_file(path):
    assert_stock_safetensors_reads(path)


def test_cairn_finds_the_golden_run_intact(cairn):
    cairn.run("verify", GOLDEN, "--read-data")


def test_a_step_that_a_pruning_has_aside_is_committed(cairn, copy):
    step = copy / NINE_WRITERS.name
    (step / "COMMIT").rename(step / "HIDDEN")
    assert newest_step(copy) == step
    assert read_step(step)[0]["step"] == 12
    cairn.run("verify", copy, "--read-data")


def test_members_of_a_later_version_1_are_ignored(cairn, copy):
    for commit in copy.glob("*/COMMIT"):
        commit.write_bytes(reseal(json.loads(commit.read_bytes()) | {"later": {"deep": [1, 2]}}))
    cairn.run("verify", copy, "--read-data")


def test_a_newer_version_is_refused_by_name(cairn, copy):
    commit = copy / NINE_WRITERS.name / "COMMIT"
    commit.write_bytes(reseal(json.loads(commit.read_bytes()) | {"cairn": 3}))
    done = cairn.run("inspect", commit.parent, exit_code=2)
    assert "format version 3" in done.stderr
    with pytest.raises(ValueError, match="format version 3"):
        read_step(commit.parent)


def test_what_a_reader_does_not_know_is_refused_by_name(cairn, copy):
    commit = copy / NINE_WRITERS.name / "COMMIT"
    commit.write_bytes(reseal(json.loads(commit.read_bytes()) | {"cairn": 2, "needs": ["delta", "telepathy"]}))
    done = cairn.run("inspect", commit.parent, exit_code=2)
    assert "`telepathy`" in done.stderr
    with pytest.raises(ValueError, match="telepathy"):
        read_step(commit.parent)
