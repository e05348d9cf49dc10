"""Checkpoints are loaded through recipes into any framework, and give what the framework itself would make of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cairn
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from cairn.torch import Shards  # noqa: E402


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    torch.manual_seed(0)
    state = {"gate": torch.randn(6, 4), "up": torch.randn(6, 4), "norm": torch.randn(4), "old": torch.ones(2)}
    with cairn.Checkpointer(tmp_path / "run") as checkpointer:
        checkpointer.save(1, state, blocking=True)
    return tmp_path / "run", state


STATEMENTS = ["gate^T, up^T -> gate_up, axis=1", "norm -> norm, dtype='bfloat16'", "old -> _"]


def expected(state: dict[str, Any]) -> dict[str, Any]:
    fused = torch.cat([state["gate"].T, state["up"].T], dim=1)
    return {"gate_up": fused, "norm": state["norm"].to(torch.bfloat16)}


def empty() -> dict[str, Any]:
    return {"gate_up": torch.full((4, 12), -1.0), "norm": torch.zeros(4, dtype=torch.bfloat16)}


def same(loaded: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return loaded.keys() == wanted.keys() and all(torch.equal(loaded[name], wanted[name]) for name in wanted)


def forms(folder: Path) -> dict[str, Any]:
    """The same recipe in every form."""
    text = "# A recipe.\n" + "\n".join(STATEMENTS)
    path = folder / "fuse.recipe"
    path.write_text(text)
    config = folder / "aoa.json"
    config.write_text(json.dumps({"aoa_statements": STATEMENTS}))
    return {
        "statements": STATEMENTS,
        "text": text,
        "path": path,
        "path as text": str(path),
        "JSON file": config,
        "AOA": {"aoa_statements": STATEMENTS, "aoa_config_reverse": False},
        "recipe": cairn.Recipe(STATEMENTS),
        "template": cairn.Recipe(text.replace("axis=1", "axis={axis}"), settings={"axis": 1}),
    }


def test_every_form_of_a_recipe_gives_the_same(stored: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    run, state = stored
    for form, recipe in forms(tmp_path).items():
        into = empty()
        cairn.load(run, into, recipe=recipe)
        assert same(into, expected(state)), form
        into = empty()
        cairn.Checkpointer(run).load(into=into, recipe=recipe)
        assert same(into, expected(state)), form


def test_a_recipe_undoes_itself(stored: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    run, state = stored
    statements = ["gate^T, up^T -> gate_up, axis=1"]
    fused = expected(state)["gate_up"]
    with cairn.Checkpointer(tmp_path / "fused") as checkpointer:
        checkpointer.save(1, {"gate_up": fused}, blocking=True)
    into = {"gate": torch.zeros(6, 4), "up": torch.zeros(6, 4)}
    cairn.load(tmp_path / "fused", into, recipe=cairn.Recipe(statements, reverse=True))
    assert torch.equal(into["gate"], state["gate"]) and torch.equal(into["up"], state["up"])


def test_shards_and_views_of_a_target_are_filled(stored: tuple[Path, dict[str, Any]]) -> None:
    run, state = stored
    left, right, norm = torch.zeros(4, 5), torch.zeros(12, 8).T[:4, :7], torch.zeros(4, dtype=torch.bfloat16)
    target = Shards((4, 12), [(left, (0, 0)), (right, (0, 5))])
    cairn.load(run, {"gate_up": target, "norm": norm}, recipe=STATEMENTS)
    wanted = expected(state)["gate_up"]
    assert torch.equal(left, wanted[:, :5]) and torch.equal(right, wanted[:, 5:])


def test_a_checkpoint_is_seen_through_a_recipe(stored: tuple[Path, dict[str, Any]]) -> None:
    run, state = stored
    made = cairn.open(run).with_recipe(STATEMENTS)
    assert list(made) == ["gate_up", "norm"]
    assert made.step == 1 and made["gate_up"].shape == (4, 12)
    part = np.asarray(made["gate_up"][1:3, 4:9])
    assert np.array_equal(part, expected(state)["gate_up"][1:3, 4:9].numpy())
    explained = cairn.open(run).explain(empty(), recipe=STATEMENTS)
    assert explained.target_bytes == 4 * 12 * 4 + 4 * 2


def test_what_nothing_feeds_keeps_its_value(stored: tuple[Path, dict[str, Any]]) -> None:
    run, state = stored
    into = empty() | {"new": torch.full((3,), 7.0)}
    loaded = cairn.load(run, into, recipe=[*STATEMENTS, "_ -> new"])
    assert same(into, expected(state) | {"new": torch.full((3,), 7.0)})
    assert loaded.missing == []


def test_a_wrong_recipe_shows_its_statement(stored: tuple[Path, dict[str, Any]]) -> None:
    run, _ = stored
    with pytest.raises(cairn.RecipeError, match="there is no tensor `gte`") as raised:
        cairn.load(run, empty(), recipe=["gte -> gate_up"])
    assert "gte -> gate_up" in str(raised.value) and "`gate`" in str(raised.value)
    with pytest.raises(cairn.RecipeError, match="there is no recipe") as raised:
        cairn.load(run, empty(), recipe="llama/hf-to-megatrn")
    assert "llama/hf-to-megatron" in (raised.value.hint or "")
    with pytest.raises(cairn.RecipeError, match="needs `axis`"):
        cairn.load(run, empty(), recipe="gate, up -> gate_up, axis={axis}")
    with pytest.raises(cairn.RecipeError, match="cannot read the recipe"):
        cairn.load(run, empty(), recipe=Path("no-such.recipe"))


def test_targets_that_do_not_come_out_are_named(stored: tuple[Path, dict[str, Any]]) -> None:
    run, _ = stored
    with pytest.raises(cairn.Error, match="gate_up"):
        cairn.load(run, empty() | {"gate_up": torch.zeros(5, 12)}, recipe=STATEMENTS)
    loaded = cairn.load(run, empty() | {"other": torch.zeros(1)}, recipe=STATEMENTS, strict=False)
    assert loaded.missing == ["other"]


def test_optimizer_state_follows_its_parameter(tmp_path: Path) -> None:
    torch.manual_seed(0)
    state = {name: torch.randn(6, 4) for name in ("q.exp_avg", "k.exp_avg", "q", "k")}
    with cairn.Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, state, blocking=True)
    into = {"qk": torch.zeros(12, 4, dtype=torch.bfloat16), "qk.exp_avg": torch.zeros(12, 4)}
    cairn.load(tmp_path, into, recipe=["q, k -> qk, axis=0, dtype='bfloat16'"])
    assert torch.equal(into["qk"], torch.cat([state["q"], state["k"]]).to(torch.bfloat16))
    assert torch.equal(into["qk.exp_avg"], torch.cat([state["q.exp_avg"], state["k.exp_avg"]]))


def test_other_frameworks_load_through_recipes_too(stored: tuple[Path, dict[str, Any]]) -> None:
    run, state = stored
    recipe = ["gate^T, up^T -> gate_up, axis=1", "norm -> _", "old -> _"]
    into = {"gate_up": np.zeros((4, 12), dtype=np.float32)}
    cairn.load(run, into, recipe=recipe)
    assert np.array_equal(into["gate_up"], expected(state)["gate_up"].numpy())
    paddle = pytest.importorskip("paddle")
    target = {"gate_up": paddle.zeros([4, 12], "float32")}
    cairn.load(run, target, recipe=recipe)
    assert np.array_equal(target["gate_up"].numpy(), expected(state)["gate_up"].numpy())
