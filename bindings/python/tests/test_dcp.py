"""Cairn behind torch.distributed.checkpoint, in one process: goal is that every way to call DCP works with the argument changed."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import cairn
import pytest
import torch
import torch.distributed.checkpoint as dcp
from cairn.torch.dcp import Reader, Writer
from dcp_ranks import wait
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.planner import SavePlanner, WriteItemType
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

pytestmark = pytest.mark.filterwarnings("ignore")


def state() -> dict[str, Any]:
    torch.manual_seed(0)
    return {
        "weight": torch.randn(5, 3),
        "nested": {"bias": torch.arange(4, dtype=torch.bfloat16), "list": [torch.ones(2), 7, "text"]},
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.zeros(0, 4, dtype=torch.int32),
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "eight bits": torch.randn(4).to(torch.float8_e4m3fn),
        "flags": torch.tensor([True, False]),
        "ünï/cödé": torch.tensor([1 + 2j]),
        "step": 12,
        "big": 2**70,
        "plain": {"tuple": (1, None, b"\x00"), "lr": 0.1, "inf": float("inf")},
    }


def zeroed(tree: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return torch.zeros_like(tree)
    if isinstance(tree, dict):
        return {key: zeroed(child) for key, child in tree.items()}
    return [zeroed(child) for child in tree] if isinstance(tree, list) else None


def assert_equal(left: Any, right: Any) -> None:
    assert type(left) is type(right)
    if isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype and left.shape == right.shape
        assert torch.equal(left.contiguous().view(torch.uint8), right.contiguous().view(torch.uint8)) if left.dim() else left == right
    elif isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_equal(left[key], right[key])
    elif isinstance(left, list):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_equal(one, other)
    else:
        assert left == right


def causes(caught: pytest.ExceptionInfo[Any]) -> list[BaseException]:
    return [failure[0] for failure in caught.value.failures.values()]


def test_a_state_of_every_kind_comes_back_equal(tmp_path: Path) -> None:
    saved = state()
    dcp.save(saved, storage_writer=Writer(tmp_path))
    loaded = zeroed(saved)
    dcp.load(loaded, storage_reader=Reader(tmp_path))
    assert_equal(loaded, saved)


def test_a_state_is_rebuilt_from_the_checkpoint_alone(tmp_path: Path) -> None:
    saved = state()
    dcp.save(saved, storage_writer=Writer(tmp_path))
    assert_equal(_load_state_dict_from_keys(storage_reader=Reader(tmp_path)), dict(saved))
    assert list(_load_state_dict_from_keys({"nested"}, storage_reader=Reader(tmp_path))) == ["nested"]


def test_nothing_on_disk_is_a_pickle_and_the_run_opens_without_dcp(tmp_path: Path) -> None:
    saved = state()
    dcp.save(saved, storage_writer=Writer(tmp_path))
    opened = cairn.open(tmp_path)
    assert torch.equal(torch.from_numpy(opened["weight"][:, 1:]), saved["weight"][:, 1:])
    assert opened.plain["step"] == 12 and opened.plain["plain.tuple"] == (1, None, b"\x00")
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".metadata", ".distcp", ".pkl")]


def test_dcp_loads_what_the_checkpointer_saved(tmp_path: Path) -> None:
    weight = torch.randn(3, 4)
    cairn.Checkpointer(tmp_path).save(5, {"model": {"weight": weight}, "note": "hello"}).wait()
    loaded: dict[str, Any] = {"model": {"weight": torch.zeros(3, 4)}, "note": ""}
    dcp.load(loaded, storage_reader=Reader(tmp_path, step=5))
    assert torch.equal(loaded["model"]["weight"], weight) and loaded["note"] == "hello"


def test_a_repeated_save_leaves_only_the_new_checkpoint(tmp_path: Path) -> None:
    for number in range(3):
        dcp.save({"x": torch.full((4,), number), "n": number}, storage_writer=Writer(tmp_path))
    assert len(list(tmp_path.iterdir())) == 1
    loaded: dict[str, Any] = {"x": torch.zeros(4, dtype=torch.int64), "n": -1}
    dcp.load(loaded, storage_reader=Reader(tmp_path))
    assert loaded["n"] == 2 and loaded["x"].tolist() == [2] * 4


def test_a_save_that_fails_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    dcp.save({"x": torch.ones(4)}, storage_writer=Writer(tmp_path))
    with pytest.raises(CheckpointException) as caught:
        dcp.save({"x": torch.zeros(4), "deep": {"bad": object()}}, storage_writer=Writer(tmp_path))
    (cause,) = causes(caught)
    assert isinstance(cause, cairn.StateError) and isinstance(cause, Exception)
    assert "`deep.bad`" in str(cause) and cause.hint
    loaded: dict[str, Any] = {"x": torch.zeros(4)}
    dcp.load(loaded, storage_reader=Reader(tmp_path))
    assert loaded["x"].tolist() == [1] * 4
    dcp.save({"x": torch.full((4,), 3.0)}, storage_writer=Writer(tmp_path))
    assert cairn.open(tmp_path)["x"][:].tolist() == [3] * 4


def _gone(*_: Any, **__: Any) -> None:
    raise OSError("gone")


def test_a_coordinator_that_dies_before_the_commit_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dcp.save({"x": torch.ones(4)}, storage_writer=Writer(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "finish", _gone)
        with pytest.raises(CheckpointException, match="gone"):
            dcp.save({"x": torch.zeros(4)}, storage_writer=Writer(tmp_path))
    assert cairn.open(tmp_path)["x"][:].tolist() == [1] * 4
    dcp.save({"x": torch.full((4,), 2.0)}, storage_writer=Writer(tmp_path))
    assert cairn.open(tmp_path)["x"][:].tolist() == [2] * 4


def test_a_damaged_newest_step_is_passed_over(tmp_path: Path) -> None:
    for step in (1, 2):
        dcp.save({"x": torch.full((4,), step)}, storage_writer=Writer(tmp_path, step=step))
    for part in (tmp_path / "step-00000002").rglob("*.part"):
        part.unlink()
    loaded: dict[str, Any] = {"x": torch.zeros(4, dtype=torch.int64)}
    dcp.load(loaded, storage_reader=Reader(tmp_path))
    assert loaded["x"].tolist() == [1] * 4


def test_a_write_error_is_raised_and_nothing_is_committed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointException) as caught:
        dcp.save({"x": torch.ones(4)}, storage_writer=Writer(tmp_path / "file" / "run"))
    assert isinstance(causes(caught)[0], cairn.StoreError)


def test_steps_of_one_run_can_be_named_and_kept(tmp_path: Path) -> None:
    for step, tags in ((10, []), (20, ["good"]), (30, [])):
        writer = Writer(tmp_path, step=step, keep=cairn.Keep(last=1), tags=tags)
        dcp.save({"x": torch.full((2,), step)}, storage_writer=writer)
    assert cairn.Checkpointer(tmp_path).steps() == [20, 30]
    assert cairn.open(tmp_path, 20).tags == ["good"]
    loaded: dict[str, Any] = {"x": torch.zeros(2, dtype=torch.int64)}
    dcp.load(loaded, storage_reader=Reader(tmp_path, step=20))
    assert loaded["x"].tolist() == [20, 20]


def test_a_committed_step_is_overwritten_only_if_allowed(tmp_path: Path) -> None:
    dcp.save({"x": torch.ones(2)}, storage_writer=Writer(tmp_path, step=1))
    dcp.save({"x": torch.zeros(2)}, storage_writer=Writer(tmp_path, step=1))
    with pytest.raises(CheckpointException) as caught:
        dcp.save({"x": torch.ones(2)}, storage_writer=Writer(tmp_path, step=1, overwrite=False))
    assert isinstance(causes(caught)[0], cairn.StepExists)
    assert cairn.open(tmp_path)["x"][:].tolist() == [0, 0]


def test_checkpoint_id_says_where(tmp_path: Path) -> None:
    writer, reader = Writer(), Reader()
    for name in ("one", "two"):
        dcp.save({"name": name, "x": torch.ones(1)}, checkpoint_id=tmp_path / name, storage_writer=writer)
    loaded: dict[str, Any] = {"name": "", "x": torch.zeros(1)}
    dcp.load(loaded, checkpoint_id=str(tmp_path / "one"), storage_reader=reader)
    assert loaded["name"] == "one"
    with pytest.raises(cairn.StateError, match="does not know where"):
        _ = Writer().checkpoint_id


def test_a_folder_named_like_a_step_is_still_a_run(tmp_path: Path) -> None:
    place = tmp_path / "step-00000100"
    dcp.save({"x": torch.ones(2)}, storage_writer=Writer(place))
    loaded: dict[str, Any] = {"x": torch.zeros(2)}
    dcp.load(loaded, storage_reader=Reader(place))
    assert loaded["x"].tolist() == [1, 1]


def test_module_and_optimizer_come_back_through_get_and_set_state_dict(tmp_path: Path) -> None:
    for flat in (False, True):
        options = StateDictOptions(flatten_optimizer_state_dict=flat)
        model, optimizer = trained(seed=1)
        sd, osd = get_state_dict(model, optimizer, options=options)
        dcp.save({"model": sd, "optim": osd}, storage_writer=Writer(tmp_path))
        other, other_optimizer = trained(seed=2)
        sd, osd = get_state_dict(other, other_optimizer, options=options)
        target: dict[str, Any] = {"model": sd, "optim": osd}
        dcp.load(target, storage_reader=Reader(tmp_path))
        set_state_dict(
            other, other_optimizer, model_state_dict=target["model"], optim_state_dict=target["optim"], options=options
        )
        assert_equal(dict(other.state_dict()), dict(model.state_dict()))
        assert_equal(other_optimizer.state_dict()["state"], optimizer.state_dict()["state"])


def trained(seed: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1 * seed)
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    return model, optimizer


class Counter:
    """A Stateful, as DCP's recipes define one."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.tensor = torch.full((3,), value)

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "tensor": self.tensor}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.value = state_dict["value"]


def test_a_stateful_object_is_asked_and_told(tmp_path: Path) -> None:
    dcp.save({"app": Counter(5)}, storage_writer=Writer(tmp_path))
    counter = Counter(0)
    dcp.load({"app": counter}, storage_reader=Reader(tmp_path))
    assert counter.value == 5 and counter.tensor.tolist() == [5, 5, 5]


class HalfPlanner(DefaultSavePlanner):
    """Stores tensors as float16, as an example in DCP's documentation does."""

    def resolve_data(self, write_item: Any) -> Any:
        item = super().resolve_data(write_item)
        return item if write_item.type == WriteItemType.BYTE_IO else item.to(torch.float16)  # type: ignore[union-attr]


class RenamePlanner(DefaultSavePlanner):
    """Saves under other names, and wraps plain values."""

    def set_up_planner(self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False) -> None:
        super().set_up_planner({f"foo_{key}": value for key, value in state_dict.items()}, storage_meta, is_coordinator)

    def transform_object(self, write_item: Any, object: Any) -> Any:
        if write_item.type == WriteItemType.BYTE_IO:
            object = {"wrapped": object}
        return super().transform_object(write_item, object)


def test_planners_that_change_data_and_names_are_obeyed(tmp_path: Path) -> None:
    dcp.save({"x": torch.randn(3), "n": 1}, storage_writer=Writer(tmp_path), planner=HalfPlanner())
    assert str(cairn.open(tmp_path)["x"].dtype) == "float16"
    loaded: dict[str, Any] = {"x": torch.zeros(3), "n": 0}
    dcp.load(loaded, storage_reader=Reader(tmp_path))
    assert loaded["n"] == 1 and loaded["x"].abs().sum() > 0

    dcp.save({"x": torch.ones(3), "n": 1}, storage_writer=Writer(tmp_path), planner=RenamePlanner())
    assert list(cairn.open(tmp_path)) == ["foo_x"]
    assert cairn.open(tmp_path).plain == {"foo_n": {"wrapped": 1}}


def test_a_planner_that_pickles_code_is_refused(tmp_path: Path) -> None:
    class Planner(DefaultSavePlanner):
        def transform_object(self, write_item: Any, object: Any) -> Any:
            stream = io.BytesIO()
            torch.save(Path("x"), stream)
            stream.seek(0)
            return stream

    with pytest.raises(CheckpointException) as caught:
        dcp.save({"n": 1}, storage_writer=Writer(tmp_path), planner=Planner())
    assert "`n`" in str(causes(caught)[0])


def test_cached_plans_save_again_and_again(tmp_path: Path) -> None:
    for store in (SavePlanner._cached_save_plan, SavePlanner._cached_all_plans, SavePlanner._cached_final_save_plan):
        store.clear()
    for number in range(4):
        size = 3 if number < 3 else 5
        planner = DefaultSavePlanner(enable_plan_caching=True)
        dcp.save({"x": torch.full((size,), number)}, storage_writer=Writer(tmp_path), planner=planner)
        assert cairn.open(tmp_path)["x"][:].tolist() == [number] * size


def test_only_a_part_is_loaded_if_only_a_part_is_asked_for(tmp_path: Path) -> None:
    dcp.save(state(), storage_writer=Writer(tmp_path))
    loaded: dict[str, Any] = {"weight": torch.zeros(5, 3), "other": torch.ones(2)}
    dcp.load(loaded, storage_reader=Reader(tmp_path), planner=DefaultLoadPlanner(allow_partial_load=True))
    assert torch.equal(loaded["weight"], state()["weight"]) and loaded["other"].tolist() == [1, 1]
    with pytest.raises(CheckpointException, match="other"):
        dcp.load(loaded, storage_reader=Reader(tmp_path))


def test_targets_that_are_not_plain_memory_are_filled(tmp_path: Path) -> None:
    values = torch.arange(12.0).reshape(3, 4)
    dcp.save({"a": values, "b": values, "c": values}, storage_writer=Writer(tmp_path))
    shared = torch.zeros(3, 4)
    strided = torch.zeros(4, 3).t()
    dcp.load({"a": shared, "b": shared, "c": strided}, storage_reader=Reader(tmp_path))
    assert torch.equal(shared, values) and torch.equal(strided, values)
    other = torch.zeros(3, 4, dtype=torch.int64)
    dcp.load({"a": other}, storage_reader=Reader(tmp_path), planner=DefaultLoadPlanner())
    assert other.tolist() == values.long().tolist()


def test_names_of_the_same_memory_are_each_saved(tmp_path: Path) -> None:
    weight = torch.randn(4)
    dcp.save({"embed": weight, "head": weight, "view": weight[:2]}, storage_writer=Writer(tmp_path))
    opened = cairn.open(tmp_path)
    assert opened["head"][:].tolist() == opened["embed"][:].tolist() == weight.tolist()
    assert opened["view"][:].tolist() == weight[:2].tolist()


def test_staging_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cairn.torch import _dcp_batch

    saved = {f"t{i}": torch.full((100,), float(i)) for i in range(10)}
    dcp.save(saved, storage_writer=Writer(tmp_path))
    monkeypatch.setattr(_dcp_batch, "STAGING_BYTES", 900)
    loaded: dict[str, Any] = {name: torch.zeros(100, dtype=torch.float64) for name in saved}
    dcp.load(loaded, storage_reader=Reader(tmp_path))
    assert all(torch.equal(loaded[name], saved[name].double()) for name in saved)


def test_what_changes_after_async_save_is_not_saved(tmp_path: Path) -> None:
    x = torch.ones(1000)
    response = dcp.async_save({"x": x, "n": [1]}, storage_writer=Writer(tmp_path))
    x.zero_()
    wait(response)
    assert cairn.open(tmp_path)["x"][:].tolist() == [1] * 1000


def test_async_save_raises_from_its_future(tmp_path: Path) -> None:
    with pytest.raises(BaseException, match="`bad"):
        wait(dcp.async_save({"x": torch.ones(2), "bad": {1, object}}, storage_writer=Writer(tmp_path)))


def test_without_collectives_errors_are_ordinary_exceptions(tmp_path: Path) -> None:
    dcp.save({"x": torch.ones(2), "n": 1}, storage_writer=Writer(tmp_path), use_collectives=False)
    loaded: dict[str, Any] = {"x": torch.zeros(2), "n": 0}
    dcp.load(loaded, storage_reader=Reader(tmp_path))
    assert loaded["n"] == 1 and loaded["x"].tolist() == [1, 1]
    try:
        dcp.save({"bad": object()}, storage_writer=Writer(tmp_path), use_collectives=False)
    except Exception as error:
        assert isinstance(error, cairn.StateError)
    else:
        pytest.fail("it was saved")


def test_damage_is_found_while_loading(tmp_path: Path) -> None:
    dcp.save({"x": torch.ones(1000)}, storage_writer=Writer(tmp_path))
    (data,) = tmp_path.rglob("00001.safetensors")
    raw = bytearray(data.read_bytes())
    raw[-1] ^= 1
    data.write_bytes(raw)
    with pytest.raises(CheckpointException) as caught:
        dcp.load({"x": torch.zeros(1000)}, storage_reader=Reader(tmp_path))
    assert isinstance(causes(caught)[0], cairn.Damaged)


def test_writers_and_readers_can_be_pickled(tmp_path: Path) -> None:
    writer = Writer(tmp_path, step=3)
    dcp.save({"x": torch.ones(1)}, storage_writer=writer)
    again = pickle.loads(pickle.dumps(writer))
    dcp.save({"x": torch.zeros(1)}, storage_writer=again)
    reader = pickle.loads(pickle.dumps(Reader(tmp_path)))
    loaded: dict[str, Any] = {"x": torch.ones(1)}
    dcp.load(loaded, storage_reader=copy.deepcopy(reader))
    assert loaded["x"].item() == 0


def test_a_process_of_its_own_saves(tmp_path: Path) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        kind = AsyncCheckpointerType.PROCESS
        for number in range(2):
            response = dcp.async_save(
                {"x": torch.full((3,), number), "n": number},
                storage_writer=Writer(tmp_path / "run"),
                async_checkpointer_type=kind,
            )
            wait(response)
        assert cairn.open(tmp_path / "run").plain == {"n": 1}
    finally:
        dist.destroy_process_group()
