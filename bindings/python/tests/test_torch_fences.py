"""Tensors on a GPU are saved while training goes on: what is saved is one step, and what would tear it is told."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import cairn

torch = pytest.importorskip("torch")
nn = torch.nn
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
LARGE = 1 << 26


def loaded(run: cairn.Checkpointer, step: int, name: str) -> Any:
    return torch.from_numpy(run.open(step)[name][...].copy())


def network(device: str) -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 8)).to(device)


def train(model: Any, *optimizers: Any, micro: int = 1) -> None:
    device = next(model.parameters()).device
    for _ in range(micro):
        model(torch.randn(16, 32, device=device)).square().mean().backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


KINDS = {
    "adamw": lambda model: [torch.optim.AdamW(model.parameters(), lr=0.1)],
    "fused": lambda model: [torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)],
    "foreach": lambda model: [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)],
    "capturable": lambda model: [torch.optim.Adam(model.parameters(), lr=0.1, capturable=True)],
    "two": lambda model: [torch.optim.AdamW(model[0].parameters(), lr=0.1), torch.optim.SGD(model[3].parameters(), lr=0.1)],
}


@on_gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("micro", [1, 3])
def test_a_step_waits_for_the_copies_of_the_state_it_changes(kind: str, micro: int, tmp_path: Path) -> None:
    model = network("cuda")
    optimizers = KINDS[kind](model)
    run = cairn.Checkpointer(tmp_path)
    expected = []
    for step in range(12):
        train(model, *optimizers, micro=micro)
        expected.append({name: tensor.cpu().clone() for name, tensor in model.state_dict().items()})
        run.save(step, {"model": model, "optim": dict(enumerate(optimizers))})
    run.wait()
    for step, tensors in enumerate(expected):
        for name, tensor in tensors.items():
            assert torch.equal(loaded(run, step, f"model.{name}"), tensor), (step, name)


@on_gpu
def test_a_change_without_a_fence_is_an_error_that_names_the_tensor(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.zeros(LARGE * 4, device="cuda"))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    run = cairn.Checkpointer(tmp_path)
    run.prepare({"weight": weight, "optim": optimizer}, blocking=True)
    optimizer.step()
    saving = run.save(1, {"weight": weight, "optim": optimizer})
    with torch.no_grad():
        weight.add_(1)
    with pytest.raises(cairn.Torn, match="`weight`"):
        saving.wait()
    assert run.steps() == []
    run.save(2, {"weight": weight, "optim": optimizer}).wait()
    assert run.steps() == [2]


@on_gpu
def test_who_fences_by_hand_may_change_anything(tmp_path: Path) -> None:
    tensor = torch.zeros(LARGE, device="cuda")
    run = cairn.Checkpointer(tmp_path, fence="manual")
    for step in range(5):
        with run.fence():
            tensor.fill_(step)
        run.save(step, {"t": tensor})
    run.wait()
    for step in range(5):
        assert bool((loaded(run, step, "t") == step).all())


@on_gpu
def test_a_parameter_that_moved_is_saved_from_where_it_is(tmp_path: Path) -> None:
    model = network("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    run = cairn.Checkpointer(tmp_path)
    for step in range(3):
        train(model, optimizer)
        model[0].weight.data = model[0].weight.data.clone()
        expected = model[0].weight.detach().cpu().clone()
        run.save(step, {"model": model, "optim": optimizer}).wait()
        assert torch.equal(loaded(run, step, "model.0.weight"), expected)


@on_gpu
def test_a_step_inside_a_graph_changes_nothing_that_is_being_saved(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.zeros(LARGE, device="cuda"))
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.Adam([weight], lr=1.0, capturable=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    run = cairn.Checkpointer(tmp_path)
    for step in range(5):
        graph.replay()
        expected = weight.detach().cpu().clone()
        run.save(step, {"weight": weight, "optim": optimizer})
        graph.replay()
        run.wait()
        assert torch.equal(loaded(run, step, "weight"), expected)


@on_gpu
@pytest.mark.parametrize("options", [{"scratch_bytes": 1 << 30}, {"staging_bytes": 16 << 20}, {"overlap": "queue"}, {"fence": "none"}])
def test_every_way_to_capture_saves_the_same(options: dict[str, Any], tmp_path: Path) -> None:
    weight = nn.Parameter(torch.zeros(LARGE, device="cuda"))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    weight.grad = -torch.ones_like(weight)
    run = cairn.Checkpointer(tmp_path, **options)
    for step in range(4):
        saving = run.save(step, {"weight": weight, "optim": optimizer, "count": torch.tensor(step)})
        optimizer.step()
    run.wait()
    assert saving.wait().capture == ("ring" if "staging_bytes" in options else "device scratch" if "scratch_bytes" in options else "host image")
    for step in range(4):
        assert bool((loaded(run, step, "weight") == step).all())


@on_gpu
def test_a_state_on_the_gpu_is_freed_once_it_is_captured(tmp_path: Path) -> None:
    run = cairn.Checkpointer(tmp_path)
    before = torch.cuda.memory_allocated()
    tensor = torch.ones(LARGE, device="cuda")
    run.save(1, {"t": tensor}).wait()
    del tensor
    run.steps()
    assert torch.cuda.memory_allocated() == before


def test_choices_are_checked(tmp_path: Path) -> None:
    with pytest.raises(cairn.StateError, match=r"fence='never' is not a choice\nhint: use \"auto\" or \"manual\" or \"none\""):
        cairn.Checkpointer(tmp_path, fence="never")  # type: ignore[arg-type]
    with pytest.raises(cairn.StateError, match="overlap='drop'"):
        cairn.Checkpointer(tmp_path, overlap="drop")  # type: ignore[arg-type]


def test_a_fence_without_a_save_is_nothing(tmp_path: Path) -> None:
    run = cairn.Checkpointer(tmp_path)
    with run.fence():
        pass
    run.release()


def test_a_save_that_would_wait_is_skipped_if_asked(tmp_path: Path) -> None:
    run = cairn.Checkpointer(tmp_path, overlap="skip", bytes_per_second=100 << 20)
    tensor = torch.zeros(50 << 18)
    first = run.save(1, {"t": tensor})
    second = run.save(2, {"t": tensor})
    assert second.skipped and not first.skipped
    with pytest.raises(cairn.Skipped, match="step 1 is still being written"):
        second.wait()
    first.wait()
    run.save(3, {"t": tensor}).wait()
    assert run.steps() == [1, 3]


def test_a_cancelled_save_leaves_nothing(tmp_path: Path) -> None:
    run = cairn.Checkpointer(tmp_path, bytes_per_second=20 << 20)
    saving = run.save(1, {"t": torch.zeros(50 << 18)})
    saving.cancel()
    with pytest.raises(cairn.Cancelled):
        saving.wait()
    run.close()
    assert run.steps() == []


def test_memory_is_made_ready_and_freed_on_demand(tmp_path: Path) -> None:
    run = cairn.Checkpointer(tmp_path)
    state = {"t": torch.zeros(10 << 20)}
    run.prepare(state, blocking=True)
    assert run._saving_run().staging_bytes >= 40 << 20
    run.save(1, state).wait()
    run.release()
    assert run._saving_run().staging_bytes == 0


def test_parameters_that_do_not_change_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = nn.ModuleDict({"moving": nn.Linear(512, 512), "stuck": nn.Linear(512, 512), "frozen": nn.Linear(512, 512)})
    model["frozen"].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = cairn.Checkpointer(tmp_path)
    with caplog.at_level(logging.WARNING, logger="cairn"):
        for step in range(3):
            with torch.no_grad():
                model["moving"].weight.add_(1)
            run.save(step, {"model": model, "optim": optimizer}).wait()
        run.save(3, {"model": model, "optim": optimizer})
    run.close()
    assert "`model.stuck.weight`" in caplog.text
    assert "frozen" not in caplog.text and "moving.weight" not in caplog.text


def test_the_report_says_where_the_time_went(tmp_path: Path) -> None:
    report = cairn.Checkpointer(tmp_path).save(1, {"t": torch.ones(1 << 20)}).wait()
    assert report.headline.startswith("training stall ")
    assert report.capture == "host image" and report.notes == ()
    assert report.timeline["step"] == 1
