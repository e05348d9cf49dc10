"""The callback for Hugging Face's Trainer: goal is that an interrupted training ends where an uninterrupted one does, to the bit."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import cairn
import pytest
import torch

transformers = pytest.importorskip("transformers")

from cairn.integrations.transformers import CairnCallback  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments  # noqa: E402
from transformers.trainer_callback import ExportableState  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
STEPS = 9


class Interrupted(Exception):
    """The machine goes away."""


class Interrupt(TrainerCallback):  # type: ignore[misc, unused-ignore]
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 6:
            raise Interrupted


def trainer(folder: Path, *callbacks: TrainerCallback, **arguments: Any) -> Trainer:
    """A small model with dropout, four steps to an epoch."""
    torch.manual_seed(0)
    config = GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=32, n_positions=16, bos_token_id=0, eos_token_id=1)
    rows = torch.randint(0, 32, (12, 8), generator=torch.Generator().manual_seed(1))
    settings: dict[str, Any] = {
        "max_steps": STEPS,
        "per_device_train_batch_size": 3,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
    }
    return Trainer(
        model=GPT2LMHeadModel(config),  # type: ignore[no-untyped-call]
        args=TrainingArguments(output_dir=str(folder / "hf"), **settings | arguments),
        train_dataset=[{"input_ids": row, "labels": row} for row in rows],
        eval_dataset=Noisy(),
        callbacks=list(callbacks),
    )


class Noisy(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Rows to evaluate on, which are drawn as they are asked for."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = torch.randint(0, 32, (8,))
        return {"input_ids": row, "labels": row}


def losses(done: Trainer) -> dict[int, float]:
    return {int(entry["step"]): entry["loss"] for entry in done.state.log_history if "loss" in entry}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[int, float], dict[str, torch.Tensor]]:
    whole = trainer(tmp_path_factory.mktemp("whole"))
    whole.train()
    return losses(whole), whole.model.state_dict()  # type: ignore[union-attr]


@pytest.mark.parametrize("every", [3, 4], ids=["inside an epoch", "where an epoch ends"])
def test_a_resumed_training_equals_one_without_interruption(tmp_path: Path, expected: Any, every: int) -> None:
    first = CairnCallback(tmp_path / "run", every=every, keep=cairn.Keep(last=2))
    with pytest.raises(Interrupted):
        first.resume(trainer(tmp_path, first, Interrupt()))
    first.checkpointer.close()
    assert first.checkpointer.steps() == [every]

    second = CairnCallback(tmp_path / "run", every=every, keep=cairn.Keep(last=2))
    resumed = trainer(tmp_path, second)
    second.resume(resumed)
    assert losses(resumed) == expected[0]
    assert list(losses(resumed)) == list(range(1, STEPS + 1))
    for name, tensor in resumed.model.state_dict().items():  # type: ignore[union-attr]
        assert torch.equal(tensor, expected[1][name]), name


@pytest.mark.parametrize(
    "evaluation", [{"eval_strategy": "steps", "eval_steps": 4}, {"eval_strategy": "epoch"}], ids=["by steps", "by epochs"]
)
def test_an_evaluation_at_the_step_of_a_save_changes_nothing(tmp_path: Path, evaluation: dict[str, Any]) -> None:
    whole = trainer(tmp_path, **evaluation)
    whole.train()
    first = CairnCallback(tmp_path / "run", every=4, keep=cairn.Keep(last=1, best="min:eval_loss:1"))
    with pytest.raises(Interrupted):
        first.resume(trainer(tmp_path, first, Interrupt(), **evaluation))
    first.checkpointer.close()
    assert "eval_loss" in first.checkpointer.open(4).metrics

    second = CairnCallback(tmp_path / "run", every=4)
    resumed = trainer(tmp_path, second, **evaluation)
    second.resume(resumed)
    assert losses(resumed) == losses(whole)


def test_the_last_save_has_the_last_weights_though_the_best_are_loaded(tmp_path: Path) -> None:
    callback = CairnCallback(tmp_path / "run", every=4)
    done = trainer(
        tmp_path, callback, max_steps=8, eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True,
        metric_for_best_model="eval_loss", greater_is_better=True,
    )
    seen: list[torch.Tensor] = []

    class Look(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_step_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
            seen.append(objects["model"].transformer.wte.weight.detach().clone())

    done.add_callback(Look())
    done.train()
    assert torch.equal(callback.checkpointer.open(8)["model.transformer.wte.weight"].torch(), seen[-1])


def test_a_new_run_in_an_old_folder_keeps_what_it_saves(tmp_path: Path) -> None:
    for steps in (9, 6):
        callback = CairnCallback(tmp_path / "run", every=3, keep=cairn.Keep(last=2))
        trainer(tmp_path, callback, max_steps=steps).train()
    assert callback.checkpointer.steps() == [3, 6, 9]
    assert callback.checkpointer.open().step == 6


def test_without_an_interval_it_saves_when_the_trainer_does(tmp_path: Path) -> None:
    callback = CairnCallback(tmp_path / "run")
    trainer(tmp_path, callback, save_strategy="steps", save_steps=4, save_total_limit=1).train()
    assert callback.checkpointer.steps() == [4, 8, 9]
    opened = callback.checkpointer.open(8)
    assert opened.plain["trainer"]["global_step"] == 8
    assert "model.transformer.wte.weight" in opened


class Counting(TrainerCallback, ExportableState):  # type: ignore[misc, unused-ignore]
    """A callback with a state: how many steps it has seen."""

    def __init__(self, seen: int = 0) -> None:
        self.seen = seen

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.seen += 1

    def state(self) -> dict[str, Any]:
        return {"args": {"seen": self.seen}, "attributes": {}}


def test_other_callbacks_keep_their_state(tmp_path: Path) -> None:
    callback = CairnCallback(tmp_path / "run", every=3)
    callback.resume(trainer(tmp_path, callback, Counting(), max_steps=3))
    resumed = trainer(tmp_path, callback, Counting(), max_steps=5, restore_callback_states_from_checkpoint=True)
    callback.resume(resumed)
    (counting,) = [item for item in resumed.callback_handler.callbacks if isinstance(item, Counting)]
    assert counting.seen == 5


def test_a_failed_save_ends_the_training_with_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    callback = CairnCallback(tmp_path / "file" / "run", every=9)
    with pytest.raises(cairn.StoreError):
        trainer(tmp_path, callback).train()


def test_the_example_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Path(__file__).parents[1] / "examples/hf_trainer.py"
    for steps in (10, 20):
        monkeypatch.setattr(sys, "argv", ["hf_trainer.py", str(tmp_path / "run"), f"--steps={steps}"])
        runpy.run_path(str(example), run_name="__main__")
    assert "kept: [10, 20]" in capsys.readouterr().out
