"""Torch tensors of every kind go through a checkpoint unchanged, in one process; what cannot is refused by name."""

from __future__ import annotations

import gc
import weakref
from datetime import timedelta
from pathlib import Path
from typing import Any

import cairn
import pytest

torch = pytest.importorskip("torch")

from cairn.torch import Shards  # noqa: E402


def saved(path: Path, state: Any) -> cairn.Checkpointer:
    checkpointer = cairn.Checkpointer(path)
    checkpointer.save(1, state, blocking=True)
    return checkpointer


def through(path: Path, tensor: Any, target: Any) -> Any:
    saved(path, {"x": tensor}).load(into={"x": target})
    return target


def bits(tensor: Any) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


DTYPES = [
    "bool", "uint8", "int8", "int16", "uint16", "float16", "bfloat16", "int32", "uint32", "float32", "complex64",
    "float64", "int64", "uint64", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz",
]  # fmt: skip


@pytest.mark.parametrize("name", DTYPES)
def test_every_element_type_keeps_its_bits(name: str, tmp_path: Path) -> None:
    dtype = getattr(torch, name)
    raw = torch.arange(48, dtype=torch.uint8)
    tensor = raw.view(dtype) if name != "bool" else raw > 20
    loaded = through(tmp_path, tensor, torch.zeros_like(tensor))
    assert bits(loaded) == bits(tensor)
    assert cairn.open(tmp_path)["x"].shape == tuple(tensor.shape)


def test_packed_four_bit_numbers_are_counted_one_by_one(tmp_path: Path) -> None:
    tensor = torch.arange(6, dtype=torch.uint8).reshape(2, 3).view(torch.float4_e2m1fn_x2)
    loaded = through(tmp_path, tensor, torch.zeros(2, 3, dtype=torch.uint8).view(torch.float4_e2m1fn_x2))
    assert torch.equal(loaded.view(torch.uint8), tensor.view(torch.uint8))
    assert cairn.open(tmp_path)["x"].shape == (2, 6)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (1, 1, 1), (5, 7)])
def test_scalars_and_empty_tensors_keep_their_shape(shape: tuple[int, ...], tmp_path: Path) -> None:
    tensor = torch.randn(shape)
    assert torch.equal(through(tmp_path, tensor, torch.zeros(shape)), tensor)
    assert cairn.open(tmp_path)["x"].shape == shape


VIEWS = {
    "transposed": lambda base: base.t(),
    "every other column": lambda base: base[:, ::2],
    "a column": lambda base: base[:, 3],
    "a block in the middle": lambda base: base[2:5, 1:4],
    "permuted": lambda base: base.reshape(2, 3, 6).permute(2, 0, 1),
    "channels last": lambda base: base.reshape(1, 2, 3, 6).to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_are_saved_and_loaded_as_they_lie(view: Any, tmp_path: Path) -> None:
    source = view(torch.arange(36.0).reshape(6, 6))
    checkpointer = saved(tmp_path, {"x": source})
    plain, base = torch.zeros(source.shape), torch.full((6, 6), -1.0)
    into = view(base)
    checkpointer.load(into={"x": plain})
    checkpointer.load(into={"x": into})
    assert torch.equal(plain, source) and torch.equal(into, source)
    shares = into.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    assert (base == -1).sum() == (36 - into.numel() if shares else 36)


def test_expanded_tensors_are_saved_whole_and_refused_as_targets(tmp_path: Path) -> None:
    tensor = torch.arange(3.0)[:, None].expand(3, 4)
    checkpointer = saved(tmp_path, {"x": tensor})
    into = torch.zeros(3, 4)
    checkpointer.load(into={"x": into})
    assert torch.equal(into, tensor)
    with pytest.raises(cairn.StateError, match="`x` has elements that share memory"):
        checkpointer.load(into={"x": torch.zeros(3, 1).expand(3, 4)})


def test_conjugates_and_negated_views_are_resolved(tmp_path: Path) -> None:
    tensor = torch.randn(5, dtype=torch.complex64)
    assert torch.equal(through(tmp_path / "conj", tensor.conj(), torch.zeros(5, dtype=torch.complex64)), tensor.conj())
    into = torch.zeros(5, dtype=torch.complex64)
    saved(tmp_path / "into", {"x": tensor}).load(into={"x": into.conj()})
    assert torch.equal(into.conj(), tensor)
    assert torch.equal(through(tmp_path / "neg", tensor.conj().imag, torch.zeros(5)), -tensor.imag)


def test_parameters_are_filled_in_place_without_a_gradient(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.zeros(4))
    through(tmp_path, torch.nn.Parameter(torch.ones(4)), parameter)
    assert torch.equal(parameter.detach(), torch.ones(4))
    assert parameter.requires_grad and parameter.grad is None and parameter.grad_fn is None


def test_loading_writes_into_the_memory_of_the_target(tmp_path: Path) -> None:
    target = torch.zeros(8)
    view, place = target[2:6], target.data_ptr()
    through(tmp_path, torch.ones(8), target)
    assert target.data_ptr() == place and torch.equal(view, torch.ones(4))


REFUSED = {
    "on the meta device": lambda: torch.empty(3, device="meta"),
    "torch.complex128": lambda: torch.zeros(2, dtype=torch.complex128),
    "a sparse_coo tensor": lambda: torch.eye(3).to_sparse(),
    "torch.qint8": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "no shape yet": lambda: torch.nn.parameter.UninitializedParameter(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("message", "make"), REFUSED.items(), ids=REFUSED)
def test_what_cannot_be_kept_is_refused_with_its_path(message: str, make: Any, tmp_path: Path) -> None:
    with pytest.raises(cairn.StateError) as caught:
        saved(tmp_path, {"model": {"w": make()}})
    assert "`model.w`" in str(caught.value) and message in str(caught.value)
    assert not list(tmp_path.glob("**/*.safetensors"))


def test_fake_tensors_are_refused(tmp_path: Path) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(3)
    with pytest.raises(cairn.StateError, match="`x` is a fake tensor"):
        saved(tmp_path, {"x": fake})


def test_names_of_one_tensor_are_stored_once_and_load_apart(tmp_path: Path) -> None:
    tensor = torch.randn(100, 100)
    checkpointer = saved(tmp_path, {"a": tensor, "b": tensor})
    assert len(checkpointer.open().aliases) == 1
    one, other = torch.zeros(100, 100), torch.zeros(100, 100)
    checkpointer.load(into={"a": one, "b": other})
    assert torch.equal(one, tensor) and torch.equal(other, tensor)
    tied = torch.zeros(100, 100)
    checkpointer.load(into={"a": tied, "b": tied})
    assert torch.equal(tied, tensor)


def test_a_mismatch_of_shape_or_type_names_the_tensor_and_reads_nothing(tmp_path: Path) -> None:
    checkpointer = saved(tmp_path, {"a": torch.ones(4), "b": torch.ones(4)})
    fine = torch.zeros(4)
    for wrong in (torch.zeros(5), torch.zeros(4, dtype=torch.float64), torch.zeros(2, 2)):
        with pytest.raises(cairn.KeyMismatch) as caught:
            checkpointer.load(into={"a": fine, "b": wrong})
        assert caught.value.mismatched == ["b"] and not fine.any()


def test_shards_are_boxes_of_one_tensor(tmp_path: Path) -> None:
    whole = torch.arange(60.0).reshape(10, 6)
    boxes = [(whole[:4].clone(), (0, 0)), (whole[4:, :2].clone(), (4, 0)), (whole[4:, 2:].t().contiguous().t(), (4, 2))]
    checkpointer = saved(tmp_path, {"table": Shards((10, 6), boxes)})
    assert torch.equal(checkpointer.open()["table"].torch(), whole)
    left, right = torch.zeros(10, 3), torch.zeros(3, 10).t()
    checkpointer.load(into={"table": Shards((10, 6), [(left, (0, 0)), (right, (0, 3))])})
    assert torch.equal(torch.cat([left, right], 1), whole)
    one = torch.zeros(10, 6)
    checkpointer.load(into={"table": one})
    assert torch.equal(one, whole)


def test_shards_with_a_hole_or_out_of_bounds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(cairn.Error, match="table"):
        saved(tmp_path / "hole", {"table": Shards((10,), [(torch.ones(4), (0,))])})
    with pytest.raises(cairn.StateError, match="does not lie in"):
        saved(tmp_path / "out", {"table": Shards((10,), [(torch.ones(4), (7,))])})
    with pytest.raises(cairn.StateError, match="one element type"):
        Shards((10,), [(torch.ones(5), (0,)), (torch.ones(5).double(), (5,))])


def test_an_annotated_tensor_is_the_boxes_it_says_it_is(tmp_path: Path) -> None:
    padded = torch.full((8, 3), -1.0)
    padded[:5] = torch.arange(15.0).reshape(5, 3)
    padded.global_shape, padded.global_offsets = (5, 3), ((0, 0), (2, 0))
    padded.local_offsets, padded.local_sizes = ((0, 0), (2, 0)), ((2, 3), (3, 3))
    checkpointer = saved(tmp_path, {"x": padded})
    whole = torch.zeros(5, 3)
    checkpointer.load(into={"x": whole})
    assert torch.equal(whole, padded[:5])
    into = torch.full((8, 3), -2.0)
    for name in ("global_shape", "global_offsets", "local_offsets", "local_sizes"):
        setattr(into, name, getattr(padded, name))
    checkpointer.load(into={"x": into})
    assert torch.equal(into[:5], padded[:5]) and (into[5:] == -2).all()


def test_a_tensor_made_of_tensors_is_taken_apart(tmp_path: Path) -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    checkpointer = saved(tmp_path, {"x": TwoTensor(torch.ones(3), torch.full((3,), 2.0))})
    assert list(checkpointer.open()) == ["x.a", "x.b"]
    into = TwoTensor(torch.zeros(3), torch.zeros(3))
    checkpointer.load(into={"x": into})
    assert torch.equal(into.b, torch.full((3,), 2.0))


def test_a_tensor_that_moved_or_changed_shape_is_not_mistaken_for_the_old_one(tmp_path: Path) -> None:
    checkpointer = cairn.Checkpointer(tmp_path)
    states = [torch.ones(4), torch.full((4,), 2.0), torch.ones(2, 2) * 3, torch.ones(4).double() * 4, torch.ones(6)]
    for step, tensor in enumerate(states):
        checkpointer.save(step, {"x": tensor}, blocking=True)
    for step, tensor in enumerate(states):
        assert torch.equal(checkpointer.open(step)["x"].torch(), tensor)


def test_a_view_with_other_strides_at_the_same_place_is_saved_anew(tmp_path: Path) -> None:
    checkpointer = cairn.Checkpointer(tmp_path)
    base = torch.arange(9.0).reshape(3, 3)
    for step, tensor in enumerate([base, base.t(), base]):
        checkpointer.save(step, {"x": tensor}, blocking=True)
    assert torch.equal(checkpointer.open(1)["x"].torch(), base.t())
    assert torch.equal(checkpointer.open(2)["x"].torch(), base)


def test_a_generator_belongs_to_its_rank(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(7)
    torch.rand(3, generator=generator)
    checkpointer = saved(tmp_path, {"generators": [generator]})
    expected = torch.rand(3, generator=generator)
    fresh = torch.Generator()
    checkpointer.load(into={"generators": [fresh]})
    assert torch.equal(torch.rand(3, generator=fresh), expected)


def test_a_conjugate_at_the_same_place_is_not_mistaken_for_the_tensor(tmp_path: Path) -> None:
    checkpointer = cairn.Checkpointer(tmp_path)
    tensor = torch.randn(4, dtype=torch.complex64)
    for step, value in enumerate([tensor, tensor.conj(), tensor]):
        checkpointer.save(step, {"x": value}, blocking=True)
    assert torch.equal(checkpointer.open(1)["x"].torch(), tensor.conj().resolve_conj())


def test_what_was_saved_is_not_kept_alive(tmp_path: Path) -> None:
    tensor = torch.ones(1000)
    gone = weakref.ref(tensor)
    saved(tmp_path, {"x": tensor}).close()
    del tensor
    gc.collect()
    assert gone() is None


on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@on_cuda
def test_tensors_on_a_gpu_go_through_the_host(tmp_path: Path) -> None:
    state = {
        "plain": torch.randn(1000, 1000, device="cuda"),
        "transposed": torch.randn(64, 32, device="cuda").t(),
        "scalar": torch.tensor(3.0, device="cuda"),
        "empty": torch.empty(0, 3, device="cuda"),
        "bf16": torch.randn(77, device="cuda").bfloat16(),
        "host": torch.randn(5),
    }
    expected = {name: tensor.clone() for name, tensor in state.items()}
    checkpointer = cairn.Checkpointer(tmp_path)
    saving = checkpointer.save(1, state)
    for tensor in state.values():
        tensor.zero_()
    saving.wait()
    checkpointer.load(into=state)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in state.items())
    host = {name: torch.zeros(tensor.shape, dtype=tensor.dtype) for name, tensor in state.items()}
    checkpointer.load(into=host)
    assert all(torch.equal(tensor, expected[name].cpu()) for name, tensor in host.items())


@on_cuda
def test_work_that_is_still_running_on_the_gpu_is_saved_finished(tmp_path: Path) -> None:
    tensor = torch.ones(2048, 2048, device="cuda")
    for _ in range(200):
        tensor = (tensor @ tensor).clamp(0, 1)
    checkpointer = saved(tmp_path, {"x": tensor})
    assert torch.equal(checkpointer.open()["x"].torch(), tensor.cpu())


@on_cuda
def test_tied_tensors_on_a_gpu_are_loaded_once(tmp_path: Path) -> None:
    tensor = torch.randn(30, 30, device="cuda")
    checkpointer = saved(tmp_path, {"a": tensor, "b": tensor})
    assert len(checkpointer.open().aliases) == 1
    into = torch.zeros(30, 30, device="cuda")
    checkpointer.load(into={"a": into, "b": into})
    assert torch.equal(into, tensor)


@on_cuda
@pytest.mark.parametrize("options", [{}, {"fused": True}, {"capturable": True, "lr": torch.tensor(0.1)}], ids=str)
def test_an_optimizer_on_a_gpu_goes_on_as_it_was(options: dict[str, Any], tmp_path: Path) -> None:
    def parts(seed: int) -> tuple[Any, Any]:
        torch.manual_seed(seed)
        module = torch.nn.Linear(8, 8).cuda()
        return module, torch.optim.AdamW(module.parameters(), **options)

    def step(module: Any, optimizer: Any) -> None:
        module(torch.ones(2, 8, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    module, optimizer = parts(0)
    step(module, optimizer)
    checkpointer = saved(tmp_path, {"model": module, "optim": optimizer})
    other, resumed = parts(1)
    checkpointer.load(into={"model": other, "optim": resumed})
    for one, twin in zip(module.parameters(), other.parameters(), strict=True):
        for key, value in optimizer.state[one].items():
            assert resumed.state[twin][key].device == value.device and torch.equal(resumed.state[twin][key], value)
    step(module, optimizer)
    step(other, resumed)
    assert torch.equal(module.weight, other.weight)


def test_a_rank_that_never_comes_is_named_when_the_time_for_a_commit_is_over(tmp_path: Path) -> None:
    board = torch.distributed.HashStore()
    board.set_timeout(timedelta(days=1))
    world = cairn.World(0, 2, "launch", board=board)
    with pytest.raises(cairn.RankFailed, match="rank 1 does not answer"):
        cairn.Checkpointer(tmp_path, world=world, commit_timeout=0.1).save(1, {"x": torch.ones(3)})
    assert not cairn.Checkpointer(tmp_path).steps() and not list(tmp_path.rglob("*.safetensors"))
