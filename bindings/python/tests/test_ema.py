"""Averages of weights: kept while training, saved with the state, and gone on with on another layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cairn

torch = pytest.importorskip("torch")
nn = torch.nn
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU"))]


def network(device: str = "cpu") -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(37, 101), nn.ReLU(), nn.Linear(101, 5)).to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=0.05)


def train(model: Any, optimizer: Any) -> None:
    device = next(model.parameters()).device
    model(torch.randn(8, 37, device=device)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


class Reference:
    """The same in float64."""

    def __init__(self, decay: float) -> None:
        self.decay, self.means = decay, dict[str, Any]()

    def update(self, model: Any) -> None:
        for name, parameter in model.named_parameters():
            weight = parameter.detach().cpu().double().numpy()
            mean = self.means.get(name, weight)
            self.means[name] = mean + (1 - self.decay) * (weight - mean)

    def agrees(self, opened: Any, label: str) -> bool:
        for name, mean in self.means.items():
            found = np.asarray(opened[f"ema/{label}/model.{name}"][...], dtype=np.float64)
            if not (np.abs(found - mean) <= np.spacing(np.abs(mean).astype(np.float32))).all():
                return False
        return True


@pytest.mark.parametrize("device", DEVICES)
def test_averages_are_those_of_float64_and_go_on_after_a_resume(device: str, tmp_path: Path) -> None:
    model, optimizer = network(device)
    references = {"0.9": Reference(0.9), "slow": Reference(0.999)}
    emas = [cairn.Ema(decay=0.9), cairn.Ema(decay=0.999, label="slow")]
    run = cairn.Checkpointer(tmp_path, ema=emas)
    for step in range(1, 41):
        if step == 21:
            run.close()
            model, optimizer = network(device)
            run = cairn.Checkpointer(tmp_path, ema=emas)
            run.load(into={"model": model, "optim": optimizer})
        train(model, optimizer)
        assert run.average(step, {"model": model, "optim": optimizer})
        for reference in references.values():
            reference.update(model)
        if step % 10 == 0:
            run.save(step, {"model": model, "optim": optimizer})
    run.close()
    opened = run.open(40)
    for label, reference in references.items():
        assert reference.agrees(opened, label), label


def test_every_step_that_counts_counts_once(tmp_path: Path) -> None:
    model, optimizer = network()
    wanted = True
    run = cairn.Checkpointer(tmp_path, ema=cairn.Ema(decay=0.5, every=2, skip_if=lambda: not wanted))
    state = {"model": model, "optim": optimizer}
    assert [run.average(step, state) for step in (1, 2, 2, 3, 4)] == [False, True, False, False, True]
    wanted = False
    assert not run.average(6, state)


def test_a_state_may_grow_beside_what_is_averaged(tmp_path: Path) -> None:
    model, optimizer = network()
    state = {"model": model, "optim": optimizer}
    run = cairn.Checkpointer(tmp_path, ema=cairn.Ema(decay=0.5))
    run.save(0, state).wait()  # the optimizer has no state yet
    reference = Reference(0.5)
    for step in range(1, 30):
        train(model, optimizer)
        run.average(step, state)
        reference.update(model)
        run.save(step, state)  # every update waits until the save before has its averages
    run.close()
    assert reference.agrees(run.open(29), "0.5")


def test_master_weights_are_averaged_under_the_names_of_the_weights(tmp_path: Path) -> None:
    state = {"model": {"w": torch.ones(3, dtype=torch.bfloat16)}, "optim": {"w": {"master": torch.full((3,), 1.0001)}}}
    run = cairn.Checkpointer(tmp_path, ema=cairn.Ema(decay=0.5, include="model.*", source="optim.*.master"))
    run.average(1, state)
    run.save(1, state).wait()
    assert run.open(1)["ema/0.5/model.w"][...].tolist() == [np.float32(1.0001)] * 3


def test_a_checkpoint_without_the_average_is_refused_unless_it_may_begin_anew(tmp_path: Path) -> None:
    model, optimizer = network()
    state = {"model": model, "optim": optimizer}
    cairn.Checkpointer(tmp_path).save(1, state).wait()
    run = cairn.Checkpointer(tmp_path, ema=cairn.Ema(decay=0.9))
    run.load(into=state)
    with pytest.raises(cairn.Error, match="0.9"):
        run.average(2, state)
    run = cairn.Checkpointer(tmp_path, ema=cairn.Ema(decay=0.9, restart=True))
    run.load(into=state)
    assert run.average(2, state)


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(cairn.StateError, match="there are no averages"):
        cairn.Checkpointer(tmp_path).average(1, {})
    with pytest.raises(cairn.StateError, match="same label"):
        cairn.Checkpointer(tmp_path, ema=[cairn.Ema(), cairn.Ema()])
    with pytest.raises(cairn.StateError, match="is of nothing in the state"):
        cairn.Checkpointer(tmp_path, ema=cairn.Ema()).average(1, {"t": torch.ones(2)})
    with pytest.raises(cairn.StateError, match="not in 0..1"):
        cairn.Checkpointer(tmp_path, ema=cairn.Ema(decay=1.5, include="*")).average(1, {"t": torch.ones(2)})
