"""Recipes: how the tensors of a checkpoint become those of a model that names, cuts or stores them in another way."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from . import _cairn
from ._logger import logger
from .errors import RecipeError

if TYPE_CHECKING:
    from ._tree import Flat

#: A path, the name of one that ships with Cairn, a text, statements, or a dict in the form of Paddle's AOA.
_Written: TypeAlias = "str | os.PathLike[str] | Sequence[str] | Mapping[str, object]"
#: What stands for a recipe.
RecipeLike: TypeAlias = "Recipe | _Written"


class Recipe:
    """How tensors become others.

    >>> Recipe("llama/hf-to-megatron")
    >>> Recipe("fuse.recipe", settings={"num_attention_heads": 32})
    >>> Recipe(["gate^T, up^T -> gate_up, axis=1"], reverse=True)

    ``recipe`` is the path of a file, the name of a recipe that ships with Cairn, a text with one statement on a line, a list of
    statements, or a dict with ``statements`` and ``reverse`` (``aoa_statements`` and ``aoa_config_reverse``). ``settings`` stand in
    the place of what the model's ``config.json`` says.
    """

    def __init__(
        self,
        recipe: _Written,
        *,
        reverse: bool = False,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.reverse = reverse
        self.settings = {name: _text(value) for name, value in (settings or {}).items()}
        self._shipped, self._text = _read(recipe)

    @classmethod
    def of(cls, recipe: RecipeLike) -> Recipe:
        """``recipe`` itself, or the one that it stands for."""
        return recipe if isinstance(recipe, Recipe) else cls(recipe)

    @property
    def identity(self) -> str:
        """Changes with what the recipe does."""
        return json.dumps([self._text, self.reverse, self.settings])

    def apply(self, source: _cairn.Source, flat: Flat | None = None) -> _cairn.Source:
        """``source`` with its tensors as the recipe makes them; those of ``flat`` must come out."""
        targets = None if flat is None else [(name, part.spec) for name, part in flat.parts.items()]
        made, warnings = source.transformed(
            self._text, shipped=self._shipped, reverse=self.reverse, settings=self.settings, targets=targets
        )
        for warning in warnings:
            logger.warning("%s", warning)
        return made

    def __repr__(self) -> str:
        what = self._text if self._shipped else f"{len(self._text.splitlines())} lines"
        return f"<Recipe {what}{' in reverse' if self.reverse else ''}>"


def _read(recipe: _Written) -> tuple[bool, str]:
    """Whether it is a name, and the name or the text."""
    if isinstance(recipe, Mapping):
        return False, json.dumps(dict(recipe))
    if isinstance(recipe, str):
        if "->" in recipe or recipe.lstrip().startswith(("{", "[")) or not recipe.strip():
            return False, recipe
        if not os.path.isfile(recipe):
            return True, recipe
    elif not isinstance(recipe, os.PathLike):
        return False, json.dumps(list(recipe))
    try:
        with open(recipe, encoding="utf-8") as file:
            return False, file.read()
    except OSError as error:
        raise RecipeError(f"cannot read the recipe `{os.fspath(recipe)}`: {error.strerror}") from error


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
