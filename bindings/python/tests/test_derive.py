"""What follows from other tensors is not stored and loads as if it were; what is left out on purpose is said to be."""

from __future__ import annotations

import json
import logging
import struct
from pathlib import Path
from typing import Any

import pytest

import cairn

torch = pytest.importorskip("torch")

RULE = {"model.*": "masters.*"}


def tensors(dtype: Any = torch.bfloat16) -> dict[str, Any]:
    """A model and its master weights."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"wte": (300, 257), "bias": (7,), "scale": (), "empty": (0, 4)}
    masters = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return {"model": {name: master.to(dtype) for name, master in masters.items()}, "masters": masters}


def blank(state: dict[str, Any]) -> dict[str, Any]:
    return {key: {name: torch.zeros_like(one) for name, one in part.items()} for key, part in state.items()}


def same(one: Any, other: Any) -> bool:
    return one.dtype == other.dtype and torch.equal(one.view(torch.int16), other.view(torch.int16))


def saved(path: Path, state: Any, **options: Any) -> cairn.Checkpointer:
    checkpointer = cairn.Checkpointer(path)
    checkpointer.save(1, state, blocking=True, **options)
    return checkpointer


def stored(path: Path) -> dict[str, bytes]:
    """The tensors of a step, by a reader that knows what version 1 of the format had from the start, and nothing of derived tensors."""
    step = path / "step-00000001"
    manifest, _ = json.JSONDecoder().raw_decode((step / "COMMIT").read_text())
    named = {name for layout in manifest["layouts"] for name in layout["tensors"]}
    found: dict[str, bytes] = {}
    for file in sorted((step / manifest["attempt"]).glob("*.safetensors")):
        data = file.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        for name, entry in json.loads(data[8 : 8 + length]).items():
            if name != "__metadata__":
                begin, end = (8 + length + offset for offset in entry["data_offsets"])
                found[name] = data[begin:end]
    assert set(found) == named
    return found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_that_are_casts_are_not_stored_and_load_bit_for_bit(tmp_path: Path, dtype: Any) -> None:
    state = tensors(dtype)
    run = saved(tmp_path, state, derive=RULE)
    checkpoint = run.open()
    assert checkpoint.derived == {f"model.{name}": f"masters.{name}" for name in state["model"]}
    target = blank(state)
    run.load(into=target)
    for name, weight in state["model"].items():
        assert same(target["model"][name], weight), name
        assert same(checkpoint[f"model.{name}"].torch(), weight), name
    assert checkpoint.placement("model.wte") == f"{'bf16' if dtype == torch.bfloat16 else 'f16'}[300, 257]"
    model = {"model": blank(state)["model"]}
    run.load(1, into=model)
    assert same(model["model"]["wte"], state["model"]["wte"])


def test_a_reader_of_the_first_version_reads_the_rest(tmp_path: Path) -> None:
    state = tensors()
    saved(tmp_path, state, derive=RULE)
    found = stored(tmp_path)
    assert set(found) == {f"masters.{name}" for name in state["masters"]}
    assert found["masters.wte"] == state["masters"]["wte"].numpy().tobytes()


def test_an_exported_model_has_its_weights(tmp_path: Path) -> None:
    state = tensors()
    checkpoint = saved(tmp_path / "run", state, derive=RULE).open()
    checkpoint.export_hf(tmp_path / "hf", [name for name in checkpoint if name.startswith("model.")])
    assert same(cairn.open(tmp_path / "hf")["model.wte"].torch(), state["model"]["wte"])


def test_a_weight_that_is_no_cast_is_stored_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = tensors()
    state["model"]["wte"].view(torch.int16)[17, 5] ^= 1  # rounded the other way
    with caplog.at_level(logging.WARNING, logger="cairn"):
        run = saved(tmp_path, state, derive=RULE)
    assert "`model.wte`" in caplog.text and "model.bias" not in caplog.text
    assert "model.wte" in stored(tmp_path) and "model.bias" not in stored(tmp_path)
    target = blank(state)
    run.load(into=target)
    assert all(same(target["model"][name], weight) for name, weight in state["model"].items())


def test_what_holds_at_one_save_need_not_hold_at_the_next(tmp_path: Path) -> None:
    state = tensors()
    run = cairn.Checkpointer(tmp_path)
    for step in range(4):
        run.save(step, state, derive=RULE, blocking=True)
        assert ("model.wte" in run.open(step).derived) == (step % 2 == 0)
        assert same(run.open(step)["model.wte"].torch(), state["model"]["wte"])
        state["model"]["wte"].view(torch.int16)[0, 0] ^= 1
    run.save(5, state, blocking=True)
    assert not run.open(5).derived


def test_tied_weights_are_derived_together(tmp_path: Path) -> None:
    state = tensors()
    state["model"]["head"] = state["model"]["wte"]
    run = saved(tmp_path, state, derive=RULE)
    checkpoint = run.open()
    assert checkpoint.derived["model.head"] == "masters.wte" and "model.head" not in stored(tmp_path)
    assert checkpoint.aliases == {"model.wte": "model.head"}
    target = blank(state)
    target["model"]["head"] = target["model"]["wte"]
    run.load(into=target)
    assert same(target["model"]["head"], state["model"]["wte"])


def test_nan_is_nan(tmp_path: Path) -> None:
    state = tensors()
    state["masters"]["bias"][3] = float("nan")
    state["model"]["bias"][3] = float("nan")
    run = saved(tmp_path, state, derive=RULE)
    assert "model.bias" in run.open().derived
    assert run.open()["model.bias"].torch().isnan().tolist() == [index == 3 for index in range(7)]


def test_a_flipped_bit_in_the_master_is_found_when_the_weight_is_loaded(tmp_path: Path) -> None:
    state = tensors()
    run = saved(tmp_path, state, derive=RULE)
    (file,) = tmp_path.glob("step-*/*/*.safetensors")
    data = bytearray(file.read_bytes())
    data[data.index(state["masters"]["wte"].numpy().tobytes()[:64]) + 1000] ^= 1
    file.write_bytes(data)
    with pytest.raises(cairn.Damaged, match=r"masters\.wte"):
        run.load(1, into={"model": blank(state)["model"]})


def test_a_load_can_refuse_what_is_worked_out(tmp_path: Path) -> None:
    state = tensors()
    run = saved(tmp_path, state, derive=RULE)
    with pytest.raises(cairn.KeyMismatch, match=r"`model\.wte` of `masters\.wte`") as caught:
        run.load(1, into=blank(state), rebuild=False)
    assert "model.wte" in caught.value.missing
    run.load(1, into={"masters": blank(state)["masters"]}, rebuild=False)


@pytest.mark.parametrize("rule", [{"modle.*": "masters.*"}, {"model.*": "masters"}, {"*.*": "*.*"}, {"masters.*": "model.*"}])
def test_a_rule_that_says_nothing_is_refused(tmp_path: Path, rule: dict[str, str]) -> None:
    with pytest.raises(cairn.StateError, match="derive="):
        saved(tmp_path, tensors(), derive=rule)


class Trained:
    """A model with one frozen layer, and its optimizer after a step."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        self.model[0].requires_grad_(False)
        self.optim = torch.optim.AdamW(self.model[1].parameters(), lr=0.1 + seed)
        self.model(torch.ones(1, 3)).sum().backward()
        self.optim.step()

    @property
    def state(self) -> dict[str, Any]:
        return {"model": self.model, "optim": self.optim}


@pytest.mark.parametrize("what", ["optim.*", "optimizer"])
def test_an_optimizer_that_is_left_out_is_said_to_be(tmp_path: Path, what: str) -> None:
    one, other = Trained(), Trained(seed=1)
    run = saved(tmp_path, one.state, leave_out=[what])
    assert all(name.startswith("model.") for name in stored(tmp_path))
    assert not run.open().plain
    with pytest.raises(cairn.KeyMismatch, match="left out on purpose") as caught:
        run.load(1, into=other.state)
    assert caught.value.hint is not None and "strict=False" in caught.value.hint
    run.load(1, into={"model": other.model})
    average = other.optim.state[other.model[1].weight]["exp_avg"].clone()
    run.load(1, into=other.state, strict=False)
    assert torch.equal(other.model[1].weight, one.model[1].weight)
    assert torch.equal(other.optim.state[other.model[1].weight]["exp_avg"], average)
    assert other.optim.param_groups[0]["lr"] == 1.1


def test_frozen_parameters_are_left_out(tmp_path: Path) -> None:
    one, other = Trained(), Trained(seed=1)
    run = saved(tmp_path, one.state, leave_out=["frozen"])
    assert not any(name.startswith("model.0.") for name in stored(tmp_path))
    with pytest.raises(cairn.KeyMismatch, match=r"left out on purpose when it was saved: `model\.0\.bias`, `model\.0\.weight`"):
        run.load(1, into=other.state)
    assert run.load(1, into=other.state, strict=False).missing == ["model.0.bias", "model.0.weight"]
    assert torch.equal(other.model[1].weight, one.model[1].weight)


def test_master_weights_are_left_out_by_their_usual_names(tmp_path: Path) -> None:
    state = {"w": torch.ones(2), "optim": {"master_weights": {"w": torch.ones(2)}, "w": {"master": torch.ones(2), "m": torch.ones(2)}}}
    saved(tmp_path, state, leave_out=["master weights"])
    assert set(stored(tmp_path)) == {"w", "optim.w.m"}


def test_what_is_missing_for_another_reason_is_not_said_to_be_left_out(tmp_path: Path) -> None:
    run = saved(tmp_path, {"a": torch.ones(2), "b": torch.ones(2)}, leave_out=["b"])
    with pytest.raises(cairn.KeyMismatch) as caught:
        run.load(1, into={"a": torch.ones(2), "c": torch.ones(2)})
    assert "on purpose" not in str(caught.value)


@pytest.mark.parametrize("what", ["optmi.*", "optimizer", "frozen", "master weights"])
def test_leaving_out_nothing_is_refused(tmp_path: Path, what: str) -> None:
    with pytest.raises(cairn.StateError, match="leave_out="):
        saved(tmp_path, {"w": torch.ones(2)}, leave_out=[what])


def test_left_out_and_derived_together_are_planned_once(tmp_path: Path) -> None:
    state = tensors()
    run = cairn.Checkpointer(tmp_path)
    for step in range(3):
        run.save(step, state, derive=RULE, leave_out=["*.bias"], blocking=True)
        assert set(run.open(step)) == {f"{key}.{name}" for key in state for name in ("wte", "scale", "empty")}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_on_a_gpu_are_compared_there(tmp_path: Path, dtype: Any) -> None:
    state = {key: {name: one.cuda() for name, one in part.items()} for key, part in tensors(dtype).items()}
    state["masters"]["bias"][3] = state["model"]["bias"][3] = float("nan")
    run = cairn.Checkpointer(tmp_path)
    for step in range(3):
        run.save(step, state, derive=RULE).wait()
        assert ("model.wte" in run.open(step).derived) == (step != 1)
        assert {"model.bias", "model.scale", "model.empty"} <= set(run.open(step).derived)
        assert same(run.open(step)["model.wte"].torch(), state["model"]["wte"].cpu())
        with run.fence():
            state["model"]["wte"].view(torch.int16)[299, 256] ^= 1
