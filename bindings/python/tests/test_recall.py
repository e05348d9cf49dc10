"""A save that remembers the one before saves what one without memory would, whatever was done to the state meanwhile.

Each test saves a state twice with one Checkpointer, changed in between, and once more with a fresh one: the two checkpoints of the
changed state must be equal in names, placements, bytes and values.
"""

from __future__ import annotations

import collections
import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cairn
import numpy as np
import pytest
from cairn._recall import _Tree

torch = pytest.importorskip("torch")
from cairn.torch import _recall  # noqa: E402
from torch import nn  # noqa: E402


@pytest.fixture(params=["guards", "no guards"])
def looks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to see that a tensor has not moved."""
    if request.param == "no guards":
        monkeypatch.setattr(_recall, "_guards_hold", lambda: False)
    return str(request.param)


class Run:
    """A Checkpointer that saves again and again, compared with fresh ones."""

    def __init__(self, path: Path) -> None:
        self.path, self.step = path, 0
        self.checkpointer = cairn.Checkpointer(path / "run")

    def save(self, state: Any) -> None:
        """Saves, and compares with what a Checkpointer without memory saves."""
        self.step += 1
        self.checkpointer.save(self.step, state, blocking=True)
        fresh = cairn.Checkpointer(self.path / f"fresh-{self.step}")
        fresh.save(self.step, state, blocking=True)
        assert content(self.checkpointer.open(self.step)) == content(fresh.open(self.step))


def content(checkpoint: cairn.Checkpoint) -> Any:
    tensors = {
        name: (checkpoint.placement(name), tensor.dtype, tuple(tensor.shape), np.asarray(tensor.numpy()).tobytes())
        for name, tensor in checkpoint.items()
    }
    return tensors, checkpoint.aliases, repr(checkpoint.plain), repr(checkpoint.of_rank(0))


@pytest.fixture
def run(tmp_path: Path, looks: str) -> Run:
    return Run(tmp_path)


def tensors(count: int = 3) -> dict[str, Any]:
    return {f"w{index}": torch.arange(4.0).view(2, 2) + 10 * index for index in range(count)}


def trained(module: Any, optimizer: Any) -> None:
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def model() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2, bias=False))


def data_of(change: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    def apply(state: dict[str, Any]) -> None:
        state["w1"].data = change(state["w1"].data)

    return apply


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nothing": lambda state: None,
    "other numbers": lambda state: state["w1"].fill_(9),
    "other memory": data_of(lambda data: data.clone() + 1),
    "another shape of the same memory": data_of(lambda data: data.view(4)),
    "other strides of the same memory": data_of(lambda data: data.t()),
    "another type of the same memory": data_of(lambda data: data.view(torch.int32)),
    "fewer elements in place": lambda state: state["w1"].resize_(1, 2),
    "more elements in place": lambda state: state["w1"].resize_(64, 64).fill_(3),
    "a transpose in place": lambda state: state["w1"].t_(),
    "a negative view of the same memory": data_of(torch._neg_view),
    "a conjugate view of the same memory": data_of(lambda data: torch.view_as_complex(data).conj()),
    "another object": lambda state: state.update(w1=torch.full((2, 2), 7.0)),
    "a parameter in its place": lambda state: state.update(w1=nn.Parameter(state["w1"])),
    "a gradient asked for": lambda state: state["w1"].requires_grad_(),
    "a key more": lambda state: state.update(w9=torch.ones(1)),
    "a key less": lambda state: state.pop("w1"),
    "a key renamed": lambda state: state.update(w9=state.pop("w1")),
    "keys in another order": lambda state: state.update(w0=state.pop("w0")),
    "names exchanged": lambda state: state.update(w0=state["w1"], w1=state["w0"]),
    "a tie": lambda state: state.update(w1=state["w0"]),
    "a number in its place": lambda state: state.update(w1=3),
    "an array in its place": lambda state: state.update(w1=np.arange(3)),
    "a dict in its place": lambda state: state.update(w1={"inner": state["w1"]}),
    "an empty tensor in its place": lambda state: state.update(w1=torch.empty(0, 2)),
    "part of a tensor in its place": lambda state: state.update(w1=state["w1"][:1]),
    "columns of a tensor in its place": lambda state: state.update(w1=state["w1"][:, :1]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_tensor_is_seen(run: Run, change: str) -> None:
    state = {"model": tensors(), "plain": {"step": 1}}
    run.save(state)
    with torch.no_grad():
        CHANGES[change](state["model"])
    run.save(state)
    run.save(state)


def test_a_change_of_an_array_is_seen(run: Run) -> None:
    array = np.arange(6)
    changes: list[Callable[[], Any]] = [
        lambda: array.fill(3),
        lambda: setattr(array, "shape", (2, 3)),
        lambda: array.resize((3, 4), refcheck=False),
        lambda: array.byteswap(inplace=True),
    ]
    run.save({"array": array})
    for change in changes:
        change()
        run.save({"array": array})
    run.save({"array": array.T})


@pytest.fixture
def mesh() -> Iterator[Any]:
    dist = pytest.importorskip("torch.distributed")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.device_mesh.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_a_shard_placed_otherwise_is_seen(mesh: Any, run: Run) -> None:
    from torch.distributed.tensor import DTensor, Replicate, Shard

    local = torch.arange(4.0).view(2, 2)
    texts = set()
    for placement in [Shard(0), Shard(0), Shard(1), Replicate(), Shard(0)]:
        run.save({"w": DTensor.from_local(local, mesh, [placement], run_check=False), "plain": torch.ones(1)})
        texts.add(run.checkpointer.open(run.step).placement("w"))
    assert len(texts) == 3
    sharded = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)
    run.save({"w": sharded})
    sharded._local_tensor = local.t()
    run.save({"w": sharded})


def test_what_was_tied_can_be_untied(run: Run) -> None:
    shared = torch.ones(2, 2)
    state = {"a": shared, "b": shared}
    run.save(state)
    state["b"] = shared.clone()
    run.save(state)


@pytest.mark.parametrize(
    ("old", "new"),
    [(1, 2), (1, 1.0), (1, True), (0.0, -0.0), ([1, 2], [1, 3]), ({"a": 1}, {"b": 1}), ((), [1]), ("x", None), ([], [torch.ones(2)])],
)
def test_plain_values_are_read_every_time(run: Run, old: Any, new: Any) -> None:
    state = tensors() | {"value": old, "own": cairn.PerRank(old if new.__class__ is not list else 1)}
    run.save(state)
    run.save(state)
    state["value"] = new
    state["own"].value = "changed"
    run.save(state)


def test_a_plain_list_changes_in_place(run: Run) -> None:
    state = tensors() | {"losses": [1.0]}
    run.save(state)
    state["losses"].append(2.0)
    run.save(state)


def test_a_dotted_key_is_not_taken_for_a_nested_one(run: Run) -> None:
    state = {"a": {"b": 1}, "a.b": torch.zeros(2), "c": [1, {"d": 2}]}
    run.save(state)
    state["a"]["b"], state["a.b"] = 2, torch.ones(2)
    run.save(state)


@pytest.mark.parametrize("container", [collections.OrderedDict, lambda state: collections.defaultdict(list, state), dict, list, tuple])
def test_states_of_all_containers_are_remembered(run: Run, container: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    items = tensors()
    make = (lambda: container(items.values())) if container in (list, tuple) else (lambda: container(items))
    run.save({"model": make()})
    seen = []
    again = _Tree.again
    monkeypatch.setattr(_Tree, "again", lambda *given: seen.append(again(*given)) or seen[-1])
    run.save({"model": make()})
    assert seen == [True]


def test_a_state_that_contains_itself_is_refused_again(run: Run) -> None:
    state: dict[str, Any] = tensors()
    run.save(state)
    state["loop"] = state
    with pytest.raises(cairn.StateError, match="nested too deeply, or contains itself"):
        run.checkpointer.save(9, state)


class Cloning:
    """A stateful object that hands out new tensors every time."""

    def __init__(self) -> None:
        self.tensor = torch.zeros(1000)

    def state_dict(self) -> dict[str, Any]:
        return {"clone": self.tensor.clone(), "count": int(self.tensor[0])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise AssertionError("nothing is loaded")


def test_tensors_that_an_object_makes_every_time_are_saved_as_they_are_then(run: Run) -> None:
    state = tensors() | {"stateful": Cloning()}
    for _ in range(4):
        state["stateful"].tensor += 1
        run.save(state)


def test_a_module_is_looked_at_again(run: Run) -> None:
    module = model()
    changes: list[Callable[[], Any]] = [
        lambda: None,
        lambda: module[0].weight.data.fill_(5),
        lambda: setattr(module[0].weight, "data", torch.full((2, 2), 6.0)),
        lambda: setattr(module[0], "weight", nn.Parameter(torch.full((2, 2), 7.0))),
        lambda: setattr(module[0], "bias", None),
        lambda: module.append(nn.Linear(2, 1)),
        lambda: module[0].register_buffer("more", torch.ones(3)),
        lambda: module[0].register_buffer("hidden", torch.ones(3), persistent=False),
        lambda: module[0]._non_persistent_buffers_set.add("more"),
        lambda: setattr(module[2], "weight", module[0].weight),
        lambda: setattr(module[2], "weight", nn.Parameter(module[0].weight.detach().clone())),
        lambda: setattr(module[1], "num_batches_tracked", module[1].num_batches_tracked + 1),
        lambda: module[0].register_state_dict_post_hook(lambda own, state, prefix, _: state.update({f"{prefix}hooked": torch.ones(1)})),
        lambda: setattr(module, "state_dict", lambda **_: {"only": torch.ones(1)}),
    ]
    for change in changes:
        change()
        run.save({"model": module})
        run.save({"model": module})


def test_hooks_before_a_state_dict_are_called_every_time(run: Run) -> None:
    module = model()
    calls = []

    def hook(own: Any, prefix: str, keep_vars: bool) -> None:
        calls.append((own, prefix, keep_vars))
        own.weight = nn.Parameter(torch.full((2, 2), float(len(calls))))

    module[2].register_state_dict_pre_hook(hook)
    for step in range(1, 4):
        run.checkpointer.save(step, {"model": module}, blocking=True)
        assert calls == [(module[2], "2.", True)] * step
        assert (run.checkpointer.open(step)["model.2.weight"].numpy() == step).all()


def test_an_optimizer_is_looked_at_again(run: Run) -> None:
    module = model()
    optimizer = torch.optim.AdamW(module.parameters())
    state = {"model": module, "optim": optimizer}
    first = module[0].weight
    changes: list[Callable[[], Any]] = [
        lambda: None,
        lambda: trained(module, optimizer),
        lambda: trained(module, optimizer),
        lambda: optimizer.param_groups[0].update(lr=0.5),
        lambda: optimizer.param_groups[0].update(lr=torch.tensor(0.25)),
        lambda: optimizer.state[first].update(step=3),
        lambda: optimizer.state[first].update(step=4),
        lambda: optimizer.state[first].update(exp_avg=torch.ones(2, 2)),
        lambda: optimizer.state.pop(first),
        lambda: optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]}),
        lambda: setattr(module[0], "weight", nn.Parameter(torch.ones(2, 2))),
    ]
    for change in changes:
        change()
        run.save(state)
        run.save(state)


def test_parameters_that_change_places_take_their_moments_with_them(run: Run) -> None:
    one, two = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    module = nn.ModuleDict({"one": one, "two": two})
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    trained(module, optimizer)
    optimizer.state[one.weight]["momentum_buffer"].fill_(1)
    optimizer.state[two.weight]["momentum_buffer"].fill_(2)
    run.save({"model": module, "optim": optimizer})
    one.weight, two.weight = two.weight, one.weight
    run.save({"model": module, "optim": optimizer})


def test_a_fresh_state_dict_of_the_same_module_is_remembered(run: Run) -> None:
    module = model()
    for _ in range(3):
        module[0].weight.data += 1
        run.save({"model": module.state_dict(), "twice": {"model": module}})


def test_memory_keeps_nothing_alive(tmp_path: Path, looks: str) -> None:
    checkpointer = cairn.Checkpointer(tmp_path)
    module = model()
    optimizer = torch.optim.AdamW(module.parameters())
    trained(module, optimizer)
    state: Any = {"model": module, "optim": optimizer, "plain": tensors(), "array": np.ones(4), "stateful": Cloning()}
    watched = [weakref.ref(thing) for thing in [module, optimizer, *module.parameters(), *state["plain"].values(), state["array"]]]
    for step in range(3):
        checkpointer.save(step, state, blocking=True)
    del state, module, optimizer
    gc.collect()
    assert [watch() for watch in watched] == [None] * len(watched)


def test_guards_of_torch_are_used() -> None:
    assert _recall._guards_hold()
