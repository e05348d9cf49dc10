"""The life of a run: steps saved, found again, passed over when damaged, pruned; and the handle of a save."""

from __future__ import annotations

import asyncio
import logging
import pickle
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cairn
from cairn.errors import Damaged, Error, KeyMismatch, StateError, StepExists, StepNotFound, StoreError


@pytest.fixture
def run(tmp_path: Path) -> cairn.Checkpointer:
    return cairn.Checkpointer(tmp_path / "run")


def state(value: float = 1.0) -> dict[str, Any]:
    return {"model": {"w": np.full((2, 3), float(value)), "b": np.full(3, value, np.float32)}, "epoch": int(value), "lr": 0.1}


def data_file(run: cairn.Checkpointer, step: int) -> Path:
    (found,) = Path(run.url, f"step-{step:08}").glob("*/00000.safetensors")
    return found


def damage(run: cairn.Checkpointer, step: int) -> None:
    """Turns a bit in the last tensor of a step."""
    raw = bytearray(data_file(run, step).read_bytes())
    raw[-1] ^= 1
    data_file(run, step).write_bytes(raw)


# Saving and opening.


def test_a_step_is_opened_as_a_mapping(run: cairn.Checkpointer) -> None:
    run.save(3, state(), blocking=True, metrics={"loss": 0.5, "n": 2}, tags=["best"], assets={"config.json": b"{}"})
    checkpoint = run.open(3)
    assert isinstance(checkpoint, Mapping)
    assert list(checkpoint) == sorted(checkpoint) == ["model.b", "model.w"]
    assert (len(checkpoint), "model.w" in checkpoint, "model" in checkpoint, 3 in checkpoint) == (2, True, False, False)
    assert checkpoint["model.w"].shape == (2, 3) and checkpoint.get("nope") is None
    with pytest.raises(KeyError, match="nope"):
        checkpoint["nope"]
    assert (checkpoint.step, checkpoint.world_size, checkpoint.tags) == (3, 1, ["best"])
    assert (checkpoint.metrics, checkpoint.plain) == ({"loss": 0.5, "n": 2}, {"epoch": 1, "lr": 0.1})
    assert checkpoint.assets == {"config.json": b"{}"}
    assert checkpoint.placement("model.w") == "f64[2, 3]" and checkpoint.placement("nope") is None
    assert checkpoint.created is not None and checkpoint.created.endswith("Z")
    assert repr(checkpoint) == "<Checkpoint step 3: 2 tensors>"


def test_steps_are_found_by_number_by_name_and_as_the_latest(run: cairn.Checkpointer) -> None:
    for step in (1, 2, 10):
        run.save(step, state(step), blocking=True)
    assert run.steps() == [1, 2, 10]
    assert (run.open().step, run.open(2).step) == (10, 2)
    assert cairn.open(run.url).step == 10
    assert cairn.open(run.url, 1).step == 1
    assert cairn.open(f"{run.url}/step-00000002").step == cairn.open(Path(run.url, "step-00000002")).step == 2
    assert cairn.load(run.url, state(0)).state["epoch"] == 10


def test_a_step_that_is_not_there_is_said_so(run: cairn.Checkpointer) -> None:
    for use in (run.open, run.verify, lambda: run.load(into={}), lambda: run.explain(into={})):
        with pytest.raises(StepNotFound, match="has no (usable checkpoint|committed step)"):
            use()
    run.save(1, {}, blocking=True)
    run.save(5, {}, blocking=True)
    for use in (run.open, run.verify, lambda step: run.load(step, into={})):
        with pytest.raises(StepNotFound, match=r"there is no step 7 in `file://(.|\n)*hint: committed steps: 1, 5"):
            use(7)


@pytest.mark.parametrize("step", [-1, 2**64, 1.0, "3", None, "last"])
def test_a_step_is_a_whole_number(run: cairn.Checkpointer, step: Any) -> None:
    for use in (lambda: run.save(step, {}), lambda: run.open(step), lambda: run.load(step, into={}), lambda: run.verify(step)):
        with pytest.raises(StateError, match=r"is not a step\nhint: steps are whole numbers from 0"):
            use()


def test_a_numpy_integer_is_a_step_and_so_is_the_largest(run: cairn.Checkpointer) -> None:
    run.save(np.int64(3), {}, blocking=True)  # type: ignore[arg-type]
    run.save(2**64 - 1, {}, blocking=True)
    assert run.steps() == [3, 2**64 - 1]


def test_a_committed_step_is_replaced_only_on_request(run: cairn.Checkpointer) -> None:
    run.save(1, state(1), blocking=True)
    with pytest.raises(StepExists, match=r"step 1 is already committed(.|\n)*hint: .*`replace`"):
        run.save(1, state(2), blocking=True)
    assert run.open(1).plain["epoch"] == 1
    run.save(1, state(2), replace=True, blocking=True)
    assert run.open(1).plain["epoch"] == 2
    run.load(1, into=state(0))


def test_an_unknown_place_is_refused_in_words() -> None:
    with pytest.raises(StoreError, match=r"`gopher` is not supported(.|\n)*hint: give a path"):
        cairn.Checkpointer("gopher://hole").save(1, {})


def test_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"ranks='all' is not a choice\nhint: use \"same\" or \"differ\""):
        cairn.Checkpointer(tmp_path, ranks="all")  # type: ignore[arg-type]
    with pytest.raises(StateError, match="`\\$metrics.loss` is a object"):
        cairn.Checkpointer(tmp_path).save(0, {}, metrics={"loss": object()})  # type: ignore[dict-item]
    with pytest.raises(StateError, match=r"strict='all' is not a choice\nhint: use True, False or \"partial\""):
        run = cairn.Checkpointer(tmp_path)
        run.save(1, {}, blocking=True)
        run.load(into={}, strict="all")  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [-1.0, -1e-9, float("-inf"), float("nan")])
def test_a_time_to_wait_is_not_negative(tmp_path: Path, seconds: float) -> None:
    refused = pytest.raises(StateError, match=r"is not a time to wait\nhint: give seconds, 0 or more")
    with refused:
        cairn.Checkpointer(tmp_path, commit_timeout=seconds)
    for option in ("commit_timeout", "takeover"):
        with refused:
            cairn._cairn.Run(str(tmp_path), 0, 1, None, **{option: seconds})


@pytest.mark.parametrize("seconds", [0, 1e-9, 1e300, float("inf")])
def test_a_time_to_wait_may_be_nothing_or_for_ever(tmp_path: Path, seconds: float) -> None:
    with cairn.Checkpointer(tmp_path, commit_timeout=seconds) as run:
        run.save(1, {"lr": 0.1}, blocking=True)
        assert run.steps() == [1]


# Strictness.


def test_every_difference_of_tensors_is_listed_at_once(run: cairn.Checkpointer) -> None:
    run.save(1, state(), blocking=True)
    into = {"model": {"w": np.zeros((3, 2)), "c": np.zeros(3)}}
    with pytest.raises(KeyMismatch) as raised:
        run.load(into=into)
    assert str(raised.value) == (
        "checkpoint and target do not fit: 1 missing, 1 unexpected, 1 mismatched names\n"
        "  missing     `model.c`  (stored: `model.w`)\n"
        "  mismatched  `model.w`: target f64[3, 2], stored f64[2, 3]\n"
        "  unexpected  `model.b`\n"
        "hint: did you mean `model.w` for `model.c`? `cairn inspect --tree` lists every stored name"
    )
    assert (raised.value.missing, raised.value.unexpected, raised.value.mismatched) == (["model.c"], ["model.b"], ["model.w"])
    assert not into["model"]["w"].any()


def test_every_difference_of_values_is_listed_at_once(run: cairn.Checkpointer) -> None:
    run.save(1, {"trainer": {"m": np.ones(1), "epoch": 1, "seed": 2}}, blocking=True)
    with pytest.raises(KeyMismatch) as raised:
        run.load(into={"trainer": {"m": np.zeros(1), "epoch": 0, "sed": 0, "x": np.zeros(1)}})
    assert str(raised.value) == (
        "checkpoint and target do not fit: 2 missing, 1 unexpected\n"
        "  missing     `trainer.sed`\n"
        "  missing     `trainer.x`\n"
        "  unexpected  `trainer.seed`\n"
        "hint: `cairn inspect --tree` lists every stored name"
    )


def test_an_element_type_that_differs_is_a_mismatch(run: cairn.Checkpointer) -> None:
    run.save(1, state(), blocking=True)
    into = state(0)
    into["model"]["b"] = np.zeros(3, np.float64)
    with pytest.raises(KeyMismatch, match=r"mismatched  `model.b`: target f64\[3\], stored f32\[3\]"):
        run.load(into=into)


def test_what_lies_beside_the_top_keys_is_not_unexpected(run: cairn.Checkpointer) -> None:
    run.save(1, {**state(), "optim": {"m": np.ones(9)}}, blocking=True)
    into = {"model": {"w": np.zeros((2, 3)), "b": np.zeros(3, np.float32)}}
    assert run.load(into=into).unexpected == []
    assert into["model"]["w"].all()


def test_a_partial_load_lets_the_checkpoint_have_more(run: cairn.Checkpointer) -> None:
    run.save(1, state(), blocking=True)
    into = {"model": {"w": np.zeros((2, 3))}}
    with pytest.raises(KeyMismatch, match=r"unexpected  `model.b`\nhint: to load a part of the checkpoint, pass strict='partial'"):
        run.load(into=into)
    loaded = run.load(into=into, strict="partial")
    assert into["model"]["w"].all() and loaded.unexpected == ["model.b"]
    for wanted in ({"model": {"c": np.zeros(1)}}, {"epochs": 0}):
        with pytest.raises(KeyMismatch, match="1 missing"):
            run.load(into=wanted, strict="partial")


def test_a_lenient_load_takes_what_fits_and_reports_the_rest(run: cairn.Checkpointer) -> None:
    run.save(1, state(), blocking=True)
    into = {"model": {"w": np.zeros((3, 2)), "b": np.zeros(3, np.float32), "c": np.zeros(1)}, "epochs": 7}
    loaded = run.load(into=into, strict=False)
    assert into["model"]["b"].all() and not into["model"]["w"].any() and into["epochs"] == 7
    assert (loaded.missing, loaded.unexpected, loaded.mismatched) == (["epochs", "model.c"], [], ["model.w"])


def test_a_load_can_be_explained_before(run: cairn.Checkpointer) -> None:
    run.save(1, {"big": np.zeros(1 << 18), "small": np.zeros(10)}, blocking=True)
    explained = run.explain(into={"small": np.zeros(10), "other": np.zeros(1)})
    assert (explained.wanted_bytes, explained.target_bytes, explained.files, explained.missing) == (80, 80, 1, ["other"])
    assert 80 <= explained.read_bytes < 1 << 17
    assert str(explained) == explained.text and "80 bytes wanted" in explained.text
    loaded = run.load(into={"small": np.zeros(10)})
    assert (loaded.wanted_bytes, loaded.read_bytes) == (80, explained.read_bytes)


# Damage.


def test_the_latest_step_whose_bytes_are_intact_is_loaded(run: cairn.Checkpointer, caplog: pytest.LogCaptureFixture) -> None:
    for step in (1, 2, 3):
        run.save(step, state(step), blocking=True)
    damage(run, 3)
    data_file(run, 2).unlink()
    into = state(0)
    with caplog.at_level(logging.WARNING, "cairn"):
        loaded = run.load(into=into)
    assert (loaded.step, into["epoch"], into["model"]["w"][0, 0]) == (1, 1, 1.0)
    assert list(loaded.skipped) == [3, 2]
    assert [record.message.split(":")[0] for record in caplog.records] == ["passing over step 3", "passing over step 2"]


def test_a_step_that_was_asked_for_is_not_passed_over(run: cairn.Checkpointer) -> None:
    for step in (1, 2):
        run.save(step, state(step), blocking=True)
    damage(run, 2)
    with pytest.raises(Damaged, match="model"):
        run.load(2, into=state(0))
    with pytest.raises(Damaged):
        run.verify(2)
    with pytest.raises(Damaged):
        run.verify()
    assert run.verify(1)["damage"] == []
    assert run.verify(2, read_data=False)["checked_bytes"] == 0


def test_nothing_usable_lists_every_reason(run: cairn.Checkpointer) -> None:
    run.save(1, state(), blocking=True)
    damage(run, 1)
    with pytest.raises(StepNotFound, match=r"has no usable checkpoint\n  step 1: "):
        run.load(into=state(0))


def test_the_latest_step_with_a_missing_file_is_not_opened(run: cairn.Checkpointer) -> None:
    for step in (1, 2):
        run.save(step, state(step), blocking=True)
    data_file(run, 2).unlink()
    assert run.open().step == 1


# Retention.


def test_old_steps_are_pruned_in_the_background(tmp_path: Path) -> None:
    keep = cairn.Keep(last=2, every=10)
    with cairn.Checkpointer(tmp_path, keep=keep) as run:
        for step in (1, 2, 10, 11, 12, 13):
            run.save(step, {"a": np.zeros(1)}, tags=["best"] if step == 2 else [], blocking=True)
    assert run.steps() == [2, 10, 12, 13]


def test_without_a_rule_every_step_stays(tmp_path: Path) -> None:
    with cairn.Checkpointer(tmp_path) as run:
        for step in range(5):
            run.save(step, {})
    assert run.steps() == [0, 1, 2, 3, 4]


def test_the_newest_step_always_stays(tmp_path: Path) -> None:
    with cairn.Checkpointer(tmp_path, keep=cairn.Keep(last=0)) as run:
        for step in (1, 2):
            run.save(step, {}, blocking=True)
    assert run.steps() == [2]


def test_a_damaged_newest_step_does_not_cost_the_good_one(tmp_path: Path) -> None:
    with cairn.Checkpointer(tmp_path) as run:
        for step in (1, 2):
            run.save(step, state(step), blocking=True)
    data_file(run, 2).unlink()
    run._run.prune(cairn.Keep(last=1)._policy())
    assert 1 in run.steps()


def test_the_best_steps_stay(tmp_path: Path) -> None:
    with cairn.Checkpointer(tmp_path, keep=cairn.Keep(best=["min:loss:2", "max:accuracy:1"])) as run:
        for step, loss in enumerate([0.5, 0.1, 0.3, float("nan"), 0.9]):
            run.save(step, {}, metrics={"loss": loss, "accuracy": float(step == 0)}, blocking=True)
    assert run.steps() == [0, 1, 2, 4]


def test_a_tag_keeps_a_step_until_it_is_taken_off(tmp_path: Path) -> None:
    with cairn.Checkpointer(tmp_path, keep=cairn.Keep(last=1)) as run:
        run.save(1, {}, tags=["eval"], blocking=True)
        run.tag("latest", "released")
        assert run.tags() == ["eval", "released"]
        run.save(2, {}, blocking=True)
        run.wait()
        assert run.steps() == [1, 2]
        for name in ("eval", "released"):
            run.untag(1, name)
        assert run.tags(1) == []
        run.save(3, {}, blocking=True)
    assert run.steps() == [3]


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"best": "loss"}, "min:eval_loss:3"),
        ({"within": ["1 fortnight"]}, "30d/1d"),
        ({"grace": "soon"}, "90s"),
        ({"read_data": 7.0}, "from 0 to 1"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused_at_once(tmp_path: Path, rules: dict[str, Any], words: str) -> None:
    with pytest.raises(StateError) as raised:
        cairn.Checkpointer(tmp_path, keep=cairn.Keep(**rules))
    assert words in str(raised.value)


def test_a_name_that_is_no_tag_is_refused(run: cairn.Checkpointer) -> None:
    run.save(1, {}, blocking=True)
    for name in ("", "a/b", "..", "with space", "x" * 65):
        with pytest.raises(StateError):
            run.tag(1, name)
    with pytest.raises(StepNotFound):
        run.tag(2, "best")


def test_files_of_a_deleted_step_stay_for_the_grace_period(tmp_path: Path) -> None:
    with cairn.Checkpointer(tmp_path, keep=cairn.Keep(last=1, grace="1h")) as run:
        run.save(1, state(1), blocking=True)
        opened = run.open(1)
        run.save(2, state(2), blocking=True)
    assert run.steps() == [2]
    with pytest.raises(StepNotFound, match="deleted"):
        run.open(1)
    target = state(0)
    opened.load(target)
    run._run.prune(cairn.Keep(last=1)._policy())
    with pytest.raises(StepNotFound, match="deleted"):
        opened.load(target)


# The handle of a save.


def test_a_save_reports_what_it_did(run: cairn.Checkpointer) -> None:
    saving = run.save(4, {"a": np.zeros(1000)})
    report = saving.wait()
    assert report == saving.report() == saving.wait(0.0)
    assert (report.step, saving.step, saving.staged, saving.done()) == (4, 4, True, True)
    assert report.len_bytes >= 8000 and saving.progress() == (report.len_bytes,) * 2
    assert 0 <= report.stall_seconds == saving.stall_seconds <= report.durable_seconds <= report.committed_seconds
    assert repr(saving) == "<Saving step 4: done>"
    assert f"step-00000004/{report.attempt}" in str(data_file(run, 4))


def test_waiting_has_an_end_but_the_save_goes_on(run: cairn.Checkpointer) -> None:
    saving = run.save(1, {"a": np.zeros(64 << 20, np.uint8)})
    with pytest.raises(TimeoutError, match="step 1 is still being saved after 0.0 s"):
        saving.wait(0.0)
        raise AssertionError("64 MiB were durable at once")
    assert saving.wait(60).step == 1


def test_a_save_can_be_awaited(run: cairn.Checkpointer) -> None:
    async def train() -> list[int]:
        saving = run.save(1, {"a": np.zeros(1 << 20)})
        ticks = 0
        while not saving.done():
            ticks += 1
            await asyncio.sleep(0)
        return [(await saving).step, (await saving).step, ticks > 0]

    assert asyncio.run(train()) == [1, 1, True]


def test_a_save_has_a_future(run: cairn.Checkpointer) -> None:
    saving = run.save(1, {"a": np.zeros(1000)})
    assert isinstance(saving.future, Future) and saving.future is saving.future
    assert saving.future.result(60).step == 1


def failing(run: cairn.Checkpointer, step: int) -> cairn.Saving:
    """A save that fails in the background, because its folder cannot be made."""
    folder = Path(run.url, f"step-{step:08}")
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file is where a folder must be")
    return run.save(step, {"a": np.zeros(10)})


def test_a_failed_save_raises_wherever_it_is_looked_at(run: cairn.Checkpointer) -> None:
    saving = failing(run, 1)
    with pytest.raises(Error) as raised:
        saving.wait()
    assert isinstance(saving.future.exception(60), type(raised.value))
    assert saving.done() and run.steps() == []


def test_a_failed_save_nobody_looked_at_is_raised_by_the_next(run: cairn.Checkpointer) -> None:
    saving = failing(run, 1)
    while not saving.done():
        time.sleep(0.001)
    with pytest.raises(Error, match="step 1"):
        run.save(2, {"a": np.zeros(1)})
    run.save(2, {"a": np.zeros(1)}, blocking=True)
    assert run.steps() == [2]


def test_closing_raises_what_nobody_looked_at(tmp_path: Path) -> None:
    run = cairn.Checkpointer(tmp_path / "run")
    failing(run, 1)
    with pytest.raises(Error):
        run.close()


# The object itself.


def test_leaving_the_block_waits_for_the_save(tmp_path: Path) -> None:
    with cairn.Checkpointer(tmp_path) as run:
        saving = run.save(1, {"a": np.zeros(1 << 20)})
    assert saving.done() and run.steps() == [1]
    run.save(2, {}, blocking=True)
    assert run.steps() == [1, 2]


def test_an_exception_in_the_block_passes_and_the_save_is_kept(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), cairn.Checkpointer(tmp_path) as run:
        run.save(1, {"a": np.zeros(1 << 20)})
        1 / 0
    assert run.steps() == [1]


def test_an_exception_in_the_block_is_not_hidden_by_a_failed_save(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ZeroDivisionError), cairn.Checkpointer(tmp_path / "run") as run:
        failing(run, 1)
        1 / 0
    assert "a save failed while another error was on its way" in caplog.text


def test_two_objects_save_to_one_run_in_turn(tmp_path: Path) -> None:
    one, two = cairn.Checkpointer(tmp_path), cairn.Checkpointer(tmp_path)
    for step in range(4):
        (one, two)[step % 2].save(step, state(step), blocking=True)
    assert one.steps() == two.steps() == [0, 1, 2, 3]


def test_errors_survive_pickling() -> None:
    error = KeyMismatch("what", hint="what next")
    error.missing = ["a"]
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.missing) == (KeyMismatch, "what\nhint: what next", ["a"])


def test_every_error_is_one_of_ours() -> None:
    kinds = [kind for kind in vars(cairn.errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 8 and all(issubclass(kind, Error) and kind.__doc__ for kind in kinds)
    assert all(hasattr(cairn, name) for name in cairn.__all__)


def newly_imported(statement: str) -> set[str]:
    program = f"import sys; before = set(sys.modules); {statement}; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_importing_imports_next_to_nothing() -> None:
    assert newly_imported("import cairn") <= {"cairn", "cairn._cairn", "cairn.errors", "__future__"}


def test_using_it_imports_no_framework() -> None:
    imported = newly_imported("import cairn; [getattr(cairn, name) for name in cairn.__all__]")
    assert "cairn._checkpointer" in imported
    assert not {"numpy", "torch", "jax", "paddle", "asyncio", "concurrent.futures", "logging"} & imported


def test_a_name_it_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'cairn' has no attribute 'Chekpointer'"):
        getattr(cairn, "Chekpointer")
    assert set(cairn.__all__) <= set(dir(cairn))
