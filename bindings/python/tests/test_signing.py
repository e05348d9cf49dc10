"""Signatures: what a key requires, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cairn
from cairn.errors import StateError, Untrusted

#: Any 32 bytes are a secret key.
SECRET = "cairn-ed25519-secret:" + "5a" * 32
OTHER = "cairn-ed25519-secret:" + "a5" * 32


def state() -> dict[str, Any]:
    return {"w": np.arange(100_000, dtype=np.float32), "lr": 0.1}


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Path, str]:
    with cairn.Checkpointer(tmp_path / "run") as run:
        run.save(1, state(), blocking=True)
        return tmp_path / "run", run.sign(1, SECRET)


def test_a_signed_step_loads_where_its_key_is_required(signed: tuple[Path, str], tmp_path: Path) -> None:
    run, key = signed
    (tmp_path / "release.pub").write_text(key + "\n")
    target = {"w": np.zeros(100_000, np.float32), "lr": 0.0}
    cairn.Checkpointer(run, require_key=tmp_path / "release.pub").load(into=target)
    assert np.array_equal(target["w"], state()["w"])
    assert cairn.open(run / "step-00000001", require_key=key)["w"][7] == 7
    cairn.load(run, target, require_key=key)


def test_unsigned_steps_and_other_keys_are_refused(signed: tuple[Path, str], tmp_path: Path) -> None:
    run, key = signed
    with cairn.Checkpointer(run) as plain:
        other = plain.sign(1, OTHER)
        plain.save(2, state(), blocking=True)
    for url, required in ((run, key), (run / "step-00000002", key)):
        with pytest.raises(Untrusted, match="not signed"):
            cairn.open(url, require_key=required)
    for required in (key, other):
        cairn.open(run / "step-00000001", require_key=required)
    with pytest.raises(Untrusted, match="carries no signature"):
        (tmp_path / "hf").mkdir()
        _plain_safetensors(tmp_path / "hf" / "model.safetensors")
        cairn.open(tmp_path / "hf", require_key=key)


def test_a_byte_that_was_changed_with_its_checksums_is_refused(signed: tuple[Path, str]) -> None:
    run, key = signed
    (data,) = run.glob("step-*/*/00000.safetensors")
    raw = bytearray(data.read_bytes())
    raw[-1] ^= 1
    data.write_bytes(raw)
    with pytest.raises(Untrusted, match="not what was signed"):
        cairn.Checkpointer(run, require_key=key).load(1, into=state(), verify=False)


def test_what_is_no_key_is_refused_and_not_repeated(tmp_path: Path) -> None:
    for key in (SECRET, "cairn-ed25519-public:xyz", tmp_path / "missing"):
        with pytest.raises(StateError) as raised:
            cairn.Checkpointer(tmp_path, require_key=key).steps()
        assert "5a5a" not in str(raised.value)


def _plain_safetensors(path: Path) -> None:
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
