"""torchtitan's checkpoint manager on Cairn: goal is that its options mean what they mean there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cairn
import pytest
import torch
import torch.distributed as dist

pytest.importorskip("torchtitan.components.checkpointer")

from cairn.integrations.torchtitan import CairnCheckpointManager  # noqa: E402
from torchtitan.components.checkpointer import CheckpointManager  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Progress:
    """The trainer's own Stateful."""

    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        return {"step": torch.tensor(self.step, dtype=torch.int32), "note": "text"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = int(state["step"])


class Data:
    """A data loader whose state is bytes, as torchtitan's is."""

    def __init__(self) -> None:
        self.position = b"start"

    def state_dict(self) -> dict[str, Any]:
        return {"dp_rank_0": self.position, "world_size": 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["dp_rank_0"]


class Parts:
    """Model, optimizer and the rest, and a manager for them."""

    def __init__(self, folder: Path, kind: Any = CairnCheckpointManager, **options: Any) -> None:
        self.model = torch.nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        self.data, self.progress = Data(), Progress()
        config = kind.Config(enable=True, folder="run", interval=2, last_save_model_only=False, **options)
        self.manager = config.build(
            dataloader=self.data,
            model_parts=[self.model],
            optimizers=self.optimizer,
            lr_schedulers=self.schedule,
            states={"train_state": self.progress},
            sd_adapter=None,
            base_folder=str(folder),
        )

    def train(self, steps: range, last: int | None = None) -> None:
        for step in steps:
            self.model(torch.ones(1, 3)).sum().backward()
            self.optimizer.step()
            self.progress.step, self.data.position = step, f"after {step}".encode()
            self.manager.save(step, last_step=step == last)


@pytest.mark.parametrize("mode", ["disabled", "async"])
def test_a_training_resumes_from_its_newest_step(tmp_path: Path, mode: str) -> None:
    first = Parts(tmp_path, keep_latest_k=2, async_mode=mode)
    assert not first.manager.load()
    first.train(range(1, 8))
    first.manager.maybe_wait_for_saving()
    first.manager.close()
    assert cairn.Checkpointer(tmp_path / "run", world=cairn.World()).steps() == [4, 6]
    second = Parts(tmp_path, async_mode=mode)
    assert second.manager.load()
    assert second.progress.step == 6 and second.data.position == b"after 6"
    assert second.manager.load(step=4)
    assert second.progress.step == 4


def test_exclusion_initial_load_and_last_step(tmp_path: Path) -> None:
    first = Parts(tmp_path)
    first.train(range(1, 4), last=3)
    excluding = Parts(tmp_path, exclude_from_loading=["dataloader"])
    assert excluding.manager.load()
    assert excluding.progress.step == 3 and excluding.data.position == b"start"
    other = Parts(tmp_path / "other", initial_load_path=str(tmp_path / "run"))
    assert other.manager.load()
    assert torch.equal(other.model.weight, first.model.weight) and other.progress.step == 0


def test_a_folder_of_dcp_can_be_the_start(tmp_path: Path) -> None:
    old = Parts(tmp_path / "old", kind=CheckpointManager)
    old.train(range(1, 3))
    new = Parts(tmp_path / "new", initial_load_path=str(tmp_path / "old" / "run" / "step-2"))
    assert new.manager.load()
    assert torch.equal(new.model.weight, old.model.weight)


def test_a_disabled_manager_does_nothing(tmp_path: Path) -> None:
    config = CairnCheckpointManager.Config(enable=False)
    none: Any = None
    manager = config.build(
        dataloader=none, model_parts=[], optimizers=none, lr_schedulers=none, states={}, sd_adapter=none, base_folder=str(tmp_path)
    )
    assert not manager.load() and not manager.save(1)
