"""Lightning's checkpoints as Cairn runs: goal is that its Trainer resumes from them as from its own files."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import cairn
import pytest
import torch

pytest.importorskip("lightning")

import lightning as L  # noqa: E402
from cairn.integrations.lightning import CairnCheckpointIO  # noqa: E402
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Small(L.LightningModule):
    def __init__(self, width: int = 4, names: tuple[str, ...] = ("a", "b")) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(width, 1)
        self.dropout = torch.nn.Dropout(0.5)
        self.losses: list[float] = []

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        loss: torch.Tensor = self.layer(self.dropout(batch[0])).square().mean()
        self.log("loss", loss)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


def trainer(folder: Path, epochs: int, io: CairnCheckpointIO, **checkpointing: Any) -> L.Trainer:
    return L.Trainer(
        max_epochs=epochs,
        default_root_dir=folder,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        plugins=[io],
        callbacks=[ModelCheckpoint(dirpath=folder / "checkpoints", monitor="loss", **checkpointing)],
    )


def data() -> torch.utils.data.DataLoader[Any]:
    rows = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=2)


def fitted(folder: Path, epochs: int, io: CairnCheckpointIO, path: str | None = None, **checkpointing: Any) -> Small:
    torch.manual_seed(3)
    module = Small()
    if path is not None:
        torch.manual_seed(4)
    trainer(folder, epochs, io, **checkpointing).fit(module, data(), ckpt_path=path)
    return module


@pytest.mark.parametrize("blocking", [True, False])
def test_a_trainer_resumes_from_a_run(tmp_path: Path, blocking: bool) -> None:
    io = CairnCheckpointIO(blocking=blocking)
    first = fitted(tmp_path, 2, io, save_last=True, save_top_k=1)
    last = tmp_path / "checkpoints" / "last.ckpt"
    assert len(cairn.Checkpointer(last).steps()) == 1
    second = fitted(tmp_path, 4, io, str(last), save_last=True, save_top_k=1)
    assert len(second.losses) == len(first.losses) == 8
    loaded = io.load_checkpoint(last)
    assert loaded["epoch"] == 3 and loaded["global_step"] == 16
    assert torch.equal(loaded["state_dict"]["layer.weight"], second.layer.weight.data)
    assert loaded["optimizer_states"][0]["state"][0]["step"].item() == 16


def test_hyper_parameters_make_the_module_anew(tmp_path: Path) -> None:
    io = CairnCheckpointIO()
    module = fitted(tmp_path, 1, io, filename="one")
    checkpoint = io.load_checkpoint(tmp_path / "checkpoints" / "one.ckpt")
    assert checkpoint["hyper_parameters"] == {"width": 4, "names": ("a", "b")}
    again = Small(**checkpoint["hyper_parameters"])
    again.load_state_dict(checkpoint["state_dict"])
    assert torch.equal(again.layer.weight, module.layer.weight)


def test_a_checkpoint_comes_back_with_its_keys_and_shapes(tmp_path: Path) -> None:
    io = CairnCheckpointIO()
    checkpoint: dict[str, Any] = {
        "a": {0: torch.ones(2), "b.c": [torch.tensor(1.5), None, "x"], "b": {"c": [torch.zeros(0, 3)]}},
        "lightning": torch.full((1,), 7),
        "t": (1, 2),
    }
    io.save_checkpoint(checkpoint, tmp_path / "x.ckpt")
    io.save_checkpoint(checkpoint, tmp_path / "x.ckpt")
    loaded = io.load_checkpoint(tmp_path / "x.ckpt", map_location="cpu")
    assert loaded["a"][0].tolist() == [1, 1] and loaded["a"]["b.c"][0].item() == 1.5 and loaded["a"]["b.c"][1:] == [None, "x"]
    assert loaded["a"]["b"]["c"][0].shape == (0, 3) and loaded["lightning"].tolist() == [7] and loaded["t"] == (1, 2)
    io.remove_checkpoint(tmp_path / "x.ckpt")
    assert not (tmp_path / "x.ckpt").exists()
    with pytest.raises(FileNotFoundError):
        io.load_checkpoint(tmp_path / "x.ckpt")


def test_what_is_no_plain_data_is_refused_by_path(tmp_path: Path) -> None:
    io = CairnCheckpointIO()
    with pytest.raises(cairn.StateError, match=r"hyper_parameters\.args"):
        io.save_checkpoint({"hyper_parameters": {"args": Namespace(x=1)}, "w": torch.ones(1)}, tmp_path / "x.ckpt")
