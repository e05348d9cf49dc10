"""Several optimizers take turns: each waits for its own tensors, and who steps next is copied first."""

from __future__ import annotations

from typing import Any

import pytest

from cairn._fences import Fences, Policy
from cairn._part import DeviceMemory, Part
from cairn._tree import Flat

torch = pytest.importorskip("torch")


class Saving:
    """Writes down which fences it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int | None] = []
        self.waited: list[str] = []

    def is_captured(self) -> bool:
        return False

    def wait(self, timeout: float | None, until: str) -> None:
        self.waited.append(until)

    def fence(self, streams: dict[int, int], turn: int | None = None) -> tuple[float, None]:
        self.asked.append(turn)
        return 0.0, None


class Setup:
    """Parameters on an imagined device, and the optimizers that change them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, policy: Policy = "auto", owners: tuple[str, ...] = ("a", "b", "c"), seen: bool = True) -> None:
        monkeypatch.setattr("cairn.torch._fences.streams", lambda devices: {device: 0 for device in devices})
        self.parameters = {name: torch.nn.Parameter(torch.zeros(4)) for name in "abc"}
        self.optimizers = [torch.optim.SGD([self.parameters[name] for name in names], lr=0.1) for names in owners]
        self.fences = Fences(policy)
        self.look()
        if seen:
            self.step(*range(len(owners)))
            self.look()

    def look(self) -> None:
        flat = Flat()
        parts: dict[str, Part] = {
            name: Part(None, DeviceMemory(0, tensor.data_ptr(), 16))  # type: ignore[arg-type]
            for name, tensor in self.parameters.items()
        }
        flat.parts, flat.tensors = parts, list(self.parameters.values())
        leaves = [(str(place), optimizer) for place, optimizer in enumerate(self.optimizers)]
        self.memory = dict(zip(flat.parts, self.fences.look(flat, leaves), strict=True))

    def turns(self) -> list[int]:
        return [memory.turn for memory in self.memory.values()]

    def save(self) -> Any:
        saving: Any = Saving()
        self.fences.add(saving)
        return saving

    def step(self, *places: int) -> None:
        for place in places:
            self.optimizers[place].step()


def test_each_optimizer_waits_for_its_own_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(monkeypatch)
    assert setup.turns() == [0, 1, 2] and all(memory.fenced for memory in setup.memory.values())
    saving = setup.save()
    setup.step(1, 0, 2)
    assert saving.asked == [1, 0, None]
    setup.step(1)
    assert saving.asked == [1, 0, None]


def test_one_optimizer_waits_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(monkeypatch, owners=("abc",))
    saving = setup.save()
    setup.step(0, 0)
    assert saving.asked == [None]


def test_who_stepped_longest_ago_is_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(monkeypatch)
    setup.step(2, 1, 0)
    assert setup.fences.is_reordered()
    setup.look()
    assert setup.turns() == [2, 1, 0] and not setup.fences.is_reordered()


def test_optimizers_of_the_same_tensor_have_the_same_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(monkeypatch, owners=("a", "b", "abc"))
    assert setup.turns() == [0, 0, 0]
    saving = setup.save()
    setup.step(1)
    assert saving.asked == [None]


def test_an_optimizer_that_pauses_keeps_no_save(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(monkeypatch)
    savings = [setup.save()]
    for _ in range(3):
        setup.step(0)
        savings.append(setup.save())
    assert [saving.asked for saving in savings] == [[0, None], [0, None], [0], []]


def test_what_an_optimizer_of_no_save_changes_is_fenced_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(monkeypatch)
    saving = setup.save()
    setup.optimizers.append(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1))
    setup.look()
    setup.step(3)
    assert saving.asked == [None]


@pytest.mark.parametrize(("policy", "fenced"), [("manual", True), ("none", False)])
def test_other_policies_know_no_turns(policy: Policy, fenced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(monkeypatch, policy)
    assert setup.turns() == [0, 0, 0]
    assert [memory.fenced for memory in setup.memory.values()] == [fenced] * 3
    saving = setup.save()
    setup.step(0)
    assert saving.asked == ([None] if fenced else [])


def test_an_optimizer_is_believed_once_its_step_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its steps may be in a graph that was captured before anybody looked: replays of it call no hook.
    setup = Setup(monkeypatch, seen=False)
    assert not any(memory.fenced for memory in setup.memory.values())
    saving = setup.save()
    setup.step(0)
    assert saving.asked == [] and setup.fences.is_outdated()
    setup.look()
    assert [memory.fenced for memory in setup.memory.values()] == [True, False, False]


def test_an_optimizer_that_was_not_seen_since_the_last_save_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cairn._fences._cairn.Saving", Saving)
    setup = Setup(monkeypatch, owners=("abc",))
    assert all(memory.fenced for memory in setup.memory.values())
    setup.save()
    assert setup.fences.is_outdated()
    setup.look()
    assert not any(memory.fenced for memory in setup.memory.values())


def test_a_step_that_goes_into_a_graph_is_not_believed_and_waits_for_the_saves_before(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(monkeypatch, owners=("abc",))
    saving = setup.save()
    with monkeypatch.context() as capturing:
        capturing.setattr("cairn.torch._fences.is_capturing", lambda: True)
        setup.step(0)
    assert saving.asked == [] and saving.waited == ["staged"]
    setup.step(0)  # by hand again
    setup.look()
    assert not any(memory.fenced for memory in setup.memory.values())


def test_a_graph_is_noticed_before_anything_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    Fences("auto")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(4))], lr=0.1)
    with monkeypatch.context() as capturing:
        capturing.setattr("cairn.torch._fences.is_capturing", lambda: True)
        optimizer.step()
    from cairn.torch import _fences

    assert _fences.is_in_graph(optimizer)


def test_saves_that_are_captured_wait_for_no_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(monkeypatch)
    monkeypatch.setattr(Saving, "is_captured", lambda saving: True)
    for _ in range(5):
        setup.save()
    assert len(setup.fences._pending) == 1


def test_pinned_tensors_are_read_when_the_device_has_filled_them(monkeypatch: pytest.MonkeyPatch) -> None:
    settled = []
    monkeypatch.setattr("cairn.torch._fences.are_pinned", lambda tensors: True)
    monkeypatch.setattr("cairn.torch._fences.settle", settled.append)
    setup = Setup(monkeypatch)
    setup.fences.settle()
    assert settled == [{0}]
