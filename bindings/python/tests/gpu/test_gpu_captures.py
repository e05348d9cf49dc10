"""Training of every kind beside a save: whatever changes a state, and however, a step that is committed holds the moment of its call."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpu_device import DEVICE, torch
from gpu_training import as_bytes

import cairn

nn = torch.nn
pytestmark = pytest.mark.skipif(DEVICE != "cuda", reason="no NVIDIA GPU, and there is nothing to rehearse")
STEPS = 6
SIDE = 2048
LAYERS = 4

Make = Callable[[Any], Any]
OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=1e-2),
    "muon": lambda parameters: torch.optim.Muon(parameters, lr=1e-2),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, capturable=True),
    "adamw fused": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, capturable=True, fused=True),
}
EAGER: dict[str, Make] = {
    **OPTIMIZERS,
    "adamw foreach": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, foreach=True),
    "lbfgs": lambda parameters: torch.optim.LBFGS(parameters, lr=1e-2, max_iter=2),
}


class Loop:
    """Layers, and one step of them: forward, backward, optimizer."""

    def __init__(self, make: Make) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(*(nn.Linear(SIDE, SIDE, bias=False) for _ in range(LAYERS))).cuda()
        self.optimizer = make(list(self.model.parameters()))
        self.inputs = torch.randn(64, SIDE, device="cuda")
        self.graph: Any = None

    def step(self) -> None:
        def loss() -> Any:
            self.optimizer.zero_grad(set_to_none=self.graph is None)
            value = self.model(self.inputs).square().mean()
            value.backward()
            return value

        if isinstance(self.optimizer, torch.optim.LBFGS):
            self.optimizer.step(loss)
        else:
            loss()
            self.optimizer.step()

    def warm_up(self, steps: int = 3) -> None:
        """What has to be done beside the stream before a step can be captured."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(steps):
                self.step()
        torch.cuda.current_stream().wait_stream(side)

    def capture(self) -> None:
        """Puts the whole step into a graph."""
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()

    @property
    def state(self) -> dict[str, Any]:
        return {"model": self.model, "optim": self.optimizer}

    def clone(self) -> dict[str, Any]:
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        found = {f"model.{name}": parameter.detach().clone() for name, parameter in self.model.named_parameters()}
        for parameter, state in self.optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, torch.Tensor) and value.is_cuda and value.shape == parameter.shape:
                    found[f"optim.state.{names[id(parameter)]}.{key}"] = value.detach().clone()
        return found


def check(run: cairn.Checkpointer, expected: dict[int, dict[str, Any]], record_property: Any) -> None:
    """Every byte of every step that was saved."""
    run.wait()
    assert run.steps() == sorted(expected)
    for step, tensors in expected.items():
        opened = run.open(step)
        wrong = [name for name, tensor in tensors.items() if name not in opened or not same(opened[name][...], tensor)]
        assert wrong == [], f"step {step}"
    record_property("compared_bytes", sum(tensor.nbytes for tensors in expected.values() for tensor in tensors.values()))
    run.close()


def same(found: Any, tensor: Any) -> bool:
    return torch.equal(as_bytes(torch.from_numpy(found.copy())), as_bytes(tensor.cpu()))


def train(run: cairn.Checkpointer, loop: Loop, step: Callable[[], object]) -> dict[int, dict[str, Any]]:
    """Saves every step, goes on at once, and returns what each has to hold."""
    expected = {}
    for number in range(1, STEPS + 1):
        step()
        expected[number] = loop.clone()
        run.save(number, loop.state)
        for _ in range(4):
            step()
    return expected


@pytest.mark.parametrize("kind", EAGER)
def test_steps_by_hand(kind: str, tmp_path: Path, record_property: Any) -> None:
    loop = Loop(EAGER[kind])
    run = cairn.Checkpointer(tmp_path, keeper=None)
    check(run, train(run, loop, loop.step), record_property)


@pytest.mark.own_process
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_steps_in_a_graph_captured_before_the_first_save(kind: str, tmp_path: Path, record_property: Any) -> None:
    loop = Loop(OPTIMIZERS[kind])
    loop.warm_up()
    loop.capture()
    run = cairn.Checkpointer(tmp_path, keeper=None)
    check(run, train(run, loop, loop.graph.replay), record_property)


@pytest.mark.own_process
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_steps_in_a_graph_captured_behind_a_save(kind: str, tmp_path: Path, record_property: Any) -> None:
    loop = Loop(OPTIMIZERS[kind])
    run = cairn.Checkpointer(tmp_path, keeper=None)
    run.prepare(loop.state, blocking=True)
    loop.warm_up()
    expected = {100: loop.clone()}
    run.save(100, loop.state)
    loop.capture()
    for _ in range(4):
        loop.graph.replay()
    check(run, expected | {100 + number: tensors for number, tensors in saved_after(run, loop, 100).items()}, record_property)


def saved_after(run: cairn.Checkpointer, loop: Loop, base: int) -> dict[int, dict[str, Any]]:
    """As `train`, with replays, from the step after ``base`` on."""
    expected = {}
    for number in range(1, STEPS):
        loop.graph.replay()
        expected[number] = loop.clone()
        run.save(base + number, loop.state)
        for _ in range(4):
            loop.graph.replay()
    return expected


@pytest.mark.own_process
@pytest.mark.parametrize("kind", ["sgd", "adagrad", "muon"])
def test_steps_by_hand_and_then_in_a_graph_made_before(kind: str, tmp_path: Path, record_property: Any) -> None:
    loop = Loop(OPTIMIZERS[kind])
    loop.warm_up()
    run = cairn.Checkpointer(tmp_path, keeper=None)
    loop.capture()
    run.save(100, loop.state).wait()
    for _ in range(3):
        loop.step()
    expected = {100 + number: tensors for number, tensors in saved_after(run, loop, 100).items()}
    run.open(100)
    run.wait()
    assert run.steps() == [100, *expected]
    for step, tensors in expected.items():
        opened = run.open(step)
        assert [name for name, tensor in tensors.items() if not same(opened[name][...], tensor)] == [], f"step {step}"
    record_property("compared_bytes", sum(tensor.nbytes for tensors in expected.values() for tensor in tensors.values()))


def test_a_side_stream(tmp_path: Path, record_property: Any) -> None:
    loop = Loop(OPTIMIZERS["sgd"])
    run = cairn.Checkpointer(tmp_path, keeper=None)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        expected = train(run, loop, loop.step)
    torch.cuda.current_stream().wait_stream(side)
    check(run, expected, record_property)


def test_an_optimizer_inside_the_backward_pass(tmp_path: Path, record_property: Any) -> None:
    loop = Loop(OPTIMIZERS["sgd"])
    parameters = list(loop.model.parameters())
    optimizers = {parameter: torch.optim.SGD([parameter], lr=1e-2, momentum=0.9) for parameter in parameters}

    def hook(parameter: Any) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(hook)
    run = cairn.Checkpointer(tmp_path, keeper=None)
    expected = {}
    for number in range(1, STEPS + 1):
        loop.model(loop.inputs).square().mean().backward()
        expected[number] = {f"model.{name}": tensor.detach().clone() for name, tensor in loop.model.named_parameters()}
        run.save(number, {"model": loop.model, "optim": list(optimizers.values())})
        for _ in range(3):
            loop.model(loop.inputs).square().mean().backward()
    check(run, expected, record_property)


def test_a_compiled_optimizer(tmp_path: Path, record_property: Any) -> None:
    loop = Loop(EAGER["adamw foreach"])
    compiled = torch.compile(loop.optimizer.step)

    def step() -> None:
        loop.optimizer.zero_grad()
        loop.model(loop.inputs).square().mean().backward()
        compiled()

    run = cairn.Checkpointer(tmp_path, keeper=None)
    check(run, train(run, loop, step), record_property)


def test_changes_through_data_behind_a_fence(tmp_path: Path, record_property: Any) -> None:
    loop = Loop(OPTIMIZERS["sgd"])
    run = cairn.Checkpointer(tmp_path, keeper=None, fence="manual")

    def step() -> None:
        with run.fence():
            for parameter in loop.model.parameters():
                parameter.data.add_(1)

    check(run, train(run, loop, step), record_property)


def test_tensors_that_are_freed_and_whose_memory_is_used_again(tmp_path: Path, record_property: Any) -> None:
    run = cairn.Checkpointer(tmp_path, keeper=None)
    expected = {}
    for number in range(1, STEPS + 1):
        tensor = torch.randn(16 << 20, device="cuda")
        expected[number] = {"t": tensor.clone()}
        run.save(number, {"t": tensor})
        del tensor
        for _ in range(4):
            torch.empty(16 << 20, device="cuda").fill_(-1)
    check(run, expected, record_property)


@pytest.mark.parametrize("times", [1, 4])
def test_pinned_tensors_that_are_still_being_filled(times: int, tmp_path: Path, record_property: Any) -> None:
    host = torch.zeros(16 << 20).pin_memory()
    source = torch.zeros(16 << 20, device="cuda")
    weights = torch.randn(8192, 8192, device="cuda")
    run = cairn.Checkpointer(tmp_path, keeper=None)
    expected = {}
    for number in range(1, STEPS + 1):
        source.fill_(number)
        for _ in range(times):
            weights @ weights
        host.copy_(source, non_blocking=True)
        run.save(number, {"offloaded": host})
        expected[number] = {"offloaded": torch.full_like(source, number, device="cpu")}
    check(run, expected, record_property)


@pytest.mark.parametrize("megabytes", [1, 8, 64])
@pytest.mark.parametrize("with_optimizer", [True, False])
def test_a_ring_smaller_than_the_state_does_not_hang(megabytes: int, with_optimizer: bool, tmp_path: Path, record_property: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(24))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    run = cairn.Checkpointer(tmp_path, keeper=None, staging_bytes=megabytes << 20)
    expected = {}
    for number in range(1, 4):
        for _ in range(2):
            model(torch.randn(32, 1024, device="cuda")).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        expected[number] = {f"model.{name}": tensor.clone() for name, tensor in model.state_dict().items()}
        run.save(number, {"model": model, "optim": optimizer} if with_optimizer else {"model": model})
    check(run, expected, record_property)


@pytest.mark.own_process
def test_a_graph_that_is_captured_while_a_save_pins_its_memory(tmp_path: Path, record_property: Any) -> None:
    tensor, other = torch.randn(256 << 20, device="cuda"), torch.zeros(1000, device="cuda")
    expected = {1: {"t": tensor.clone()}}
    graph = torch.cuda.CUDAGraph()
    run = cairn.Checkpointer(tmp_path, keeper=None, fence="manual")
    saving = run.save(1, {"t": tensor})
    with torch.cuda.graph(graph):
        other.add_(1)
        time.sleep(0.5)
        other.add_(1)
    graph.replay()
    with run.fence():
        tensor.fill_(0)
    assert saving.wait().notes == ()
    assert bool((other == 2).all())
    check(run, expected, record_property)


def test_jax_arrays_that_the_next_step_donates(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    numpy = pytest.importorskip("numpy")
    if jax.default_backend() != "gpu":
        pytest.skip(f"jax runs on the {jax.default_backend()} here")
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    run = cairn.Checkpointer(tmp_path, keeper=None, scratch_bytes=1 << 30)
    array = jax.numpy.zeros((4096, 4096))
    for number in range(1, STEPS + 1):
        array = step(array)
        run.save(number, {"x": array})
        for _ in range(3):
            array = step(array)
    run.wait()
    for number in range(1, STEPS + 1):
        assert numpy.all(run.open(number)["x"][...] == 4 * number - 3), number
    run.close()
