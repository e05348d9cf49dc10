"""Accelerate's save_state and load_state with Cairn behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cairn
import pytest
import torch

pytest.importorskip("accelerate")

from accelerate import Accelerator  # noqa: E402
from cairn.integrations.accelerate import register, state  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def prepared(seed: int) -> tuple[Accelerator, Any, Any]:
    torch.manual_seed(seed)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    step(accelerator, model, optimizer, schedule)
    return accelerator, model, optimizer


def step(accelerator: Accelerator, model: Any, optimizer: Any, schedule: Any = None) -> None:
    accelerator.backward(model(torch.ones(4, 3)).sum())
    optimizer.step()
    optimizer.zero_grad()
    if schedule is not None:
        schedule.step()


def test_weights_go_to_the_run_and_come_back(tmp_path: Path) -> None:
    accelerator, model, _ = prepared(seed=1)
    run = register(accelerator, tmp_path / "run", keep=cairn.Keep(last=1))
    accelerator.save_state(str(tmp_path / "checkpoint-100"))
    run.wait()
    assert run.steps() == [100]
    assert not list((tmp_path / "checkpoint-100").glob("*.safetensors"))
    weight = model.weight.detach().clone()
    with torch.no_grad():
        model.weight.zero_()
    accelerator.load_state(str(tmp_path / "checkpoint-100"))
    assert torch.equal(model.weight, weight)


def test_a_folder_without_our_note_is_loaded_by_accelerate(tmp_path: Path) -> None:
    accelerator, model, _ = prepared(seed=1)
    accelerator.save_state(str(tmp_path / "theirs"))
    weight = model.weight.detach().clone()
    register(accelerator, tmp_path / "run")
    with torch.no_grad():
        model.weight.zero_()
    accelerator.load_state(str(tmp_path / "theirs"))
    assert torch.equal(model.weight, weight)


def test_everything_of_an_accelerator_is_one_state(tmp_path: Path) -> None:
    accelerator, model, optimizer = prepared(seed=1)
    checkpointer = cairn.Checkpointer(tmp_path)
    checkpointer.save(7, state(accelerator)).wait()
    step(accelerator, model, optimizer)
    expected, drawn = model.weight.detach().clone(), torch.rand(2)

    other, other_model, other_optimizer = prepared(seed=2)
    checkpointer.load(into=state(other))
    assert other_optimizer.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"] == 0.05
    step(other, other_model, other_optimizer)
    assert torch.equal(other_model.weight, expected)
    assert torch.equal(torch.rand(2), drawn)


def loaded_with(seed: int, stateful: bool) -> tuple[Accelerator, Any]:
    from accelerate.utils import DataLoaderConfiguration

    torch.manual_seed(seed)
    options = DataLoaderConfiguration(use_stateful_dataloader=stateful, use_seedable_sampler=True)
    accelerator = Accelerator(cpu=True, dataloader_config=options)
    return accelerator, accelerator.prepare(torch.utils.data.DataLoader(torch.arange(8), batch_size=1, shuffle=True))  # type: ignore[arg-type]


def test_a_stateful_data_loader_goes_on_at_its_place(tmp_path: Path) -> None:
    pytest.importorskip("torchdata")
    accelerator, loader = loaded_with(seed=1, stateful=True)
    assert len(list(loader)) == 8
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    run = cairn.Checkpointer(tmp_path / "run")
    run.save(3, state(accelerator), blocking=True)
    rest = [int(batch) for batch in batches] + [int(batch) for batch in loader]
    again, other = loaded_with(seed=2, stateful=True)
    run.load(into=state(again))
    assert [int(batch) for batch in other] + [int(batch) for batch in other] == rest


def test_a_data_loader_without_a_state_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    accelerator, _ = loaded_with(seed=1, stateful=False)
    with caplog.at_level("WARNING", "cairn"):
        assert "dataloaders" not in state(accelerator)
        state(accelerator)
    assert len([record for record in caplog.records if "data loaders" in record.getMessage()]) == 1
