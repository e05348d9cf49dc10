"""What cannot be saved right is refused by name, at the save: goal is that nothing is ever taken for what it is not."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cairn
import pytest

torch = pytest.importorskip("torch")


def one_of_two(folder: Path) -> cairn.Checkpointer:
    """Rank 0 of two, which fails before it waits for the other."""
    return cairn.Checkpointer(folder, world=cairn.World(0, 2, "launch", is_unique=True))


def refused(folder: Path, state: Any) -> str:
    with pytest.raises(cairn.StateError) as caught:
        one_of_two(folder).save(1, state)
    assert caught.value.hint
    return str(caught.value)


# Tensors without memory of their own.


class Wrapper(torch.Tensor):  # type: ignore[misc]
    """A tensor that only wraps another."""

    inner: Any

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined]
        made.inner = inner
        return made

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        return NotImplemented


def test_a_tensor_that_wraps_others_is_refused_by_name(tmp_path: Path) -> None:
    masked = torch.masked.masked_tensor(torch.arange(64.0), torch.arange(64) % 2 == 0)
    for tensor in (masked, Wrapper(torch.ones(3))):
        run = cairn.Checkpointer(tmp_path)
        with pytest.raises(cairn.StateError, match="`model.x` is a .* without memory of its own"):
            run.save(1, {"model": {"x": tensor}})
        with pytest.raises(cairn.StateError, match="`model.x`"):
            run.save(1, {"model": {"x": tensor}, "y": torch.ones(2)})
    run.save(1, {"model": {"x": torch.ones(64)}}, blocking=True)
    with pytest.raises(cairn.StateError, match="`model.x`"):
        run.load(into={"model": {"x": masked}})


def test_a_functional_tensor_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(cairn.StateError, match="`x`"):
        cairn.Checkpointer(tmp_path).save(1, {"x": torch._to_functional_tensor(torch.ones(3))})


def test_tensors_of_a_device_without_addresses_are_told_apart(tmp_path: Path) -> None:
    import torch._lazy
    import torch._lazy.ts_backend

    torch._lazy.ts_backend.init()  # type: ignore[no-untyped-call]
    first, second = (torch.full((3,), value, device="lazy") for value in (1.0, 2.0))
    run = cairn.Checkpointer(tmp_path)
    run.save(1, {"a": first, "b": second, "c": first}, blocking=True)
    opened = run.open(1)
    assert [opened[name].numpy().tolist() for name in "abc"] == [[1.0] * 3, [2.0] * 3, [1.0] * 3]
    into = {name: torch.zeros(3, device="lazy") for name in "abc"}
    run.load(into=into)
    assert [into[name].cpu().tolist() for name in "abc"] == [[1.0] * 3, [2.0] * 3, [1.0] * 3]


def test_conjugated_and_negated_views_of_one_tensor_are_told_apart(tmp_path: Path) -> None:
    x = torch.tensor([1 + 2j, 3 - 4j])
    state = {"plain": x, "conj": x.conj(), "negative": torch._neg_view(x), "both": torch._neg_view(x.conj())}
    run = cairn.Checkpointer(tmp_path)
    for step in (1, 2):  # walked, and remembered
        run.save(step, state, blocking=True)
        opened = run.open(step)
        for name, tensor in state.items():
            assert opened[name].numpy().tolist() == tensor.resolve_conj().resolve_neg().tolist(), name


# Engines that cut a state in ways only they know.


def of(module: str, name: str, *bases: type, **attributes: Any) -> Any:
    """A class as an engine would define it."""
    return type(name, bases or (object,), attributes | {"__module__": module})


def test_deepspeed_is_refused_by_name(tmp_path: Path) -> None:
    engine = of("deepspeed.runtime.engine", "DeepSpeedEngine", torch.nn.Module)()
    optimizer = of("deepspeed.runtime.zero.stage_1_and_2", "DeepSpeedZeroOptimizer", param_groups=[], state={})()
    without_groups = of("deepspeed.runtime.bf16_optimizer", "BF16_Optimizer", state_dict=lambda self: {}, load_state_dict=print)()
    for what in (engine, optimizer, without_groups):
        assert "`engine` is a" in refused(tmp_path, {"engine": what, "x": torch.ones(2)})
    wrapped = torch.nn.Sequential(engine)
    assert "`model.0` is a DeepSpeedEngine" in refused(tmp_path, {"model": wrapped})
    module = torch.nn.Linear(2, 2)
    module.weight.ds_id, module.weight.ds_status = 0, "not here"  # type: ignore[assignment]
    assert "`model.weight`" in refused(tmp_path, {"model": module})
    assert "`weight`" in refused(tmp_path, {"weight": module.weight})
    plain = of("deepspeed.ops.adam.fused_adam", "FusedAdam", torch.optim.SGD)
    module = torch.nn.Linear(2, 2)
    cairn.Checkpointer(tmp_path).save(1, {"model": module, "optim": plain(module.parameters(), lr=0.1)}, blocking=True)


def test_slices_of_megatron_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = torch.nn.Linear(2, 2)
    module.weight.tensor_model_parallel = True  # type: ignore[assignment]
    assert "`model.weight` is one rank's slice" in refused(tmp_path, {"model": module})
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    assert "is one rank's slice" in refused(tmp_path, {"optim": optimizer})
    expert = torch.nn.Linear(2, 2)
    expert.weight.allreduce = False  # type: ignore[assignment]
    assert "`expert.weight` is one rank's slice" in refused(tmp_path, {"expert": expert})

    # Its layers are marked even if nothing is cut.
    parallel: Any = ModuleType("megatron.core.parallel_state")
    parallel.model_parallel_is_initialized = lambda: True
    parallel.get_tensor_model_parallel_world_size = parallel.get_expert_model_parallel_world_size = lambda: 1
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", parallel)
    cairn.Checkpointer(tmp_path).save(1, {"model": module, "expert": expert}, blocking=True)


def test_megatrons_distributed_optimizer_is_refused_by_name(tmp_path: Path) -> None:
    cut = of("megatron.core.optimizer.distrib_optimizer", "DistributedOptimizer", param_groups=[], state={})()
    assert "`optim` is a DistributedOptimizer" in refused(tmp_path, {"optim": cut})
    chain = of("megatron.core.optimizer.optimizer", "ChainedOptimizer", param_groups=[], state={}, chained_optimizers=[cut])()
    assert "`optim` is a DistributedOptimizer" in refused(tmp_path, {"optim": chain})


def test_another_kind_of_optimizer_is_refused_by_a_strict_load(tmp_path: Path) -> None:
    module = torch.nn.Linear(2, 2)
    run = cairn.Checkpointer(tmp_path)
    run.save(1, {"model": module, "optim": torch.optim.AdamW(module.parameters())}, blocking=True)
    other = {"model": module, "optim": torch.optim.SGD(module.parameters(), lr=0.1)}
    with pytest.raises(cairn.KeyMismatch, match="another kind of optimizer"):
        run.load(into=other)
    older = torch.optim.AdamW(module.parameters())
    del older.param_groups[0]["amsgrad"]
    run.load(into={"model": module, "optim": older})


# Options.


def test_options_of_the_wrong_kind_are_refused_with_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(cairn.StateError, match="cairn.Keep"):
        cairn.Checkpointer(tmp_path, keep=3)  # type: ignore[arg-type]
    for best in (("min", "loss", 1), ["min", "loss"], 3):
        with pytest.raises(cairn.StateError, match="best="):
            cairn.Checkpointer(tmp_path, keep=cairn.Keep(best=best))  # type: ignore[arg-type]


def test_a_name_that_is_not_there_is_told_with_the_closest_ones(tmp_path: Path) -> None:
    run = cairn.Checkpointer(tmp_path)
    run.save(1, {"model": {"weight": torch.ones(2)}}, blocking=True)
    with pytest.raises(KeyError, match="did you mean `model.weight`"):
        run.open(1)["model.wieght"]


def test_the_generators_of_paddle_are_not_left_out_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    def paddle(numbers_left: int, device: str = "cpu") -> Any:
        generator = SimpleNamespace(get_state=lambda: f"-1 7 0 0x1 11 22 {numbers_left}")
        core = SimpleNamespace(default_cpu_generator=lambda: generator)
        return SimpleNamespace(get_device=lambda: device, base=SimpleNamespace(core=core))

    monkeypatch.delitem(sys.modules, "paddle.distributed.fleet.layers.mpu.random", raising=False)
    monkeypatch.setitem(sys.modules, "paddle", paddle(312))
    assert cairn.Rng().state_dict()
    for used in (paddle(3), paddle(312, "gpu:0")):
        monkeypatch.setitem(sys.modules, "paddle", used)
        with pytest.raises(cairn.StateError, match="Paddle's generator"):
            cairn.Rng().state_dict()
        assert cairn.Rng(paddle=False).state_dict()
    tracker: Any = ModuleType("paddle.distributed.fleet.layers.mpu.random")
    tracker.get_rng_state_tracker = lambda: SimpleNamespace(states_={"model_parallel_rng": 1})
    monkeypatch.setitem(sys.modules, "paddle.distributed.fleet.layers.mpu.random", tracker)
    with pytest.raises(cairn.StateError, match="fleet"):
        cairn.Rng().state_dict()
