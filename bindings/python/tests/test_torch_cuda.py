"""The same promises for tensors in GPU memory. Without an NVIDIA GPU there is nothing to test."""

from __future__ import annotations

from pathlib import Path

import pytest

import cairn

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")


def trained(steps: int, seed: int = 0) -> tuple[object, object, list[float]]:
    """A small model on the GPU after some steps, its optimizer and its losses."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(256, 8)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return model, optimizer, train(model, optimizer, steps)


def train(model: object, optimizer: object, steps: int) -> list[float]:
    """The losses of some steps on data drawn from the GPU's own generator."""
    losses = []
    for _ in range(steps):
        inputs = torch.randn(32, 64, device="cuda")
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_run_on_the_gpu_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    model, optimizer, _ = trained(5)
    run = cairn.Checkpointer(tmp_path)
    run.save(5, {"model": model, "optim": optimizer, "rng": cairn.Rng()}).wait()
    expected = train(model, optimizer, 5)

    model, optimizer, _ = trained(2, seed=1)
    run.load(into={"model": model, "optim": optimizer, "rng": cairn.Rng()})
    assert train(model, optimizer, 5) == expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3fn", "int64", "bool", "uint8", "complex64"])
def test_every_element_type_comes_back_bit_by_bit(dtype: str, tmp_path: Path) -> None:
    tensor = (torch.randn(37, 5, device="cuda") * 4).to(getattr(torch, dtype))
    run = cairn.Checkpointer(tmp_path)
    run.save(1, {"t": tensor}).wait()
    target = torch.zeros_like(tensor)
    run.load(into={"t": target})
    assert torch.equal(target.view(torch.uint8), tensor.view(torch.uint8))


def test_what_changes_after_save_returns_is_not_saved(tmp_path: Path) -> None:
    tensor = torch.zeros(1 << 24, device="cuda")
    run = cairn.Checkpointer(tmp_path)
    for step in range(8):
        tensor.fill_(step)
        run.save(step, {"t": tensor})
        tensor.fill_(-1)
    run.wait()
    for step in range(8):
        target = torch.empty_like(tensor)
        run.load(step, into={"t": target})
        assert bool((target == step).all())


def test_views_that_are_not_contiguous_come_back(tmp_path: Path) -> None:
    base = torch.randn(64, 48, device="cuda")
    run = cairn.Checkpointer(tmp_path)
    run.save(1, {"t": base.t(), "s": base[::2, 1::3], "e": torch.empty(0, 3, device="cuda"), "x": torch.tensor(3.5, device="cuda")}).wait()
    other = torch.zeros(64, 48, device="cuda")
    into = {"t": other.t(), "s": torch.zeros(64, 48, device="cuda")[::2, 1::3], "e": torch.empty(0, 3, device="cuda"), "x": torch.zeros((), device="cuda")}
    run.load(into=into)
    assert torch.equal(other, base) and torch.equal(into["s"], base[::2, 1::3]) and into["x"].item() == 3.5


def test_a_checkpoint_of_the_gpu_loads_on_the_cpu_and_back(tmp_path: Path) -> None:
    tensor = torch.randn(100, 10, device="cuda", dtype=torch.bfloat16)
    run = cairn.Checkpointer(tmp_path)
    run.save(1, {"t": tensor}).wait()
    cpu = torch.zeros(100, 10, dtype=torch.bfloat16)
    run.load(into={"t": cpu})
    assert torch.equal(cpu, tensor.cpu())
    run.save(2, {"t": cpu}).wait()
    back = torch.zeros_like(tensor)
    run.load(into={"t": back})
    assert torch.equal(back, tensor)


def test_tied_weights_on_the_gpu_are_stored_once(tmp_path: Path) -> None:
    weight = torch.randn(512, 256, device="cuda")
    run = cairn.Checkpointer(tmp_path)
    report = run.save(1, {"a": weight, "b": weight}).wait()
    assert report.len_bytes < 1.5 * weight.nbytes
    assert run.open().aliases == {"b": "a"}
