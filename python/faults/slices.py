"""States of which every byte is known: tensors cut as a layout says, filled as step and generation say.

Cairn's adapters are found by the package that defined a class. This module is the adapter of its own one, so that every layout of the
format can be saved and loaded by plain processes, without a framework.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
from cairn import PerRank, _adapters
from cairn._cairn import Spec
from cairn._part import Context, Part

_adapters._BY_PACKAGE[__name__] = __name__

#: How ranks can be laid out, by their number.
MESHES = {1: ["single"], 2: ["dp=2", "tp=2", "pp=2"], 3: ["dp=3", "tp=3"], 4: ["dp=2,tp=2", "tp=4", "dp=2,pp=2"]}


@dataclass(frozen=True)
class Layout:
    """A mesh, and how it cuts each tensor: ``{"wte": "f32[96@tp, 64]"}``."""

    ranks: int
    mesh: str
    tensors: dict[str, str]

    @staticmethod
    def draw(rng: random.Random, ranks: int, shapes: dict[str, tuple[int, int]]) -> Layout:
        """Any layout of ``shapes`` over ``ranks``."""
        mesh = rng.choice(MESHES[ranks])
        axes = {part.partition("=")[0] for part in mesh.split(",")}
        return Layout(ranks, mesh, {name: _draw(rng, axes, *shape) for name, shape in shapes.items()})

    @property
    def differs(self) -> bool:
        """Whether not all ranks hold all tensors."""
        return "pp" in self.mesh

    def shapes(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of the tensors."""
        return {name: (spec.shape[0], spec.shape[1]) for name, spec in self.specs().items()}

    def whole(self) -> Layout:
        """The same tensors on one rank."""
        return Layout(1, "single", {name: f"f32[{rows}, {columns}]" for name, (rows, columns) in self.shapes().items()})

    def specs(self) -> dict[str, Spec]:
        """The tensors as the engine knows them."""
        return {name: Spec.parse(self.mesh, text) for name, text in self.tensors.items()}


def _draw(rng: random.Random, axes: set[str], rows: int, columns: int) -> str:
    dims, ends = [str(rows), str(columns)], []
    if "tp" in axes:
        cut = rng.randrange(3)
        dims[0] += ["@tp", "", rng.choice(["", "@tp/3"])][cut]
        dims[1] += ["", "@tp", ""][cut]
    if "dp" in axes and rng.random() < 0.5:
        ends.append("flat(dp)")
    if "pp" in axes:
        ends.append(f"at(pp={rng.randrange(2)})")
    return f"f32[{' | '.join([', '.join(dims), *ends])}]"


class Slice:
    """What one rank holds of a tensor."""

    def __init__(self, spec: Spec, array: Any) -> None:
        self.spec, self.array = spec, array


def whole(seed: int, step: int, generation: int, spec: Spec, index: int) -> Any:
    """All bytes of a tensor, of rows of elements."""
    rows, columns = spec.shape
    generator = np.random.Generator(np.random.SFC64([seed, step, generation, index]))
    return np.frombuffer(generator.bytes(rows * columns * 4), np.uint8).reshape(rows, columns, 4)


def state(layout: Layout, rank: int, seed: int, step: int, generation: int) -> dict[str, Any]:
    """What ``rank`` holds in a generation of a step."""
    tensors = {}
    for index, (name, spec) in enumerate(layout.specs().items()):
        if spec.local_shape(rank) is not None:
            tensors[name] = Slice(spec, _cut(spec, rank, whole(seed, step, generation, spec, index)))
    return _tree(tensors, generation, step, rank)


def blank(layout: Layout, rank: int) -> dict[str, Any]:
    """Where a load on ``rank`` goes."""
    tensors = {}
    for name, spec in layout.specs().items():
        shape = spec.local_shape(rank)
        if shape is not None:
            tensors[name] = Slice(spec, np.zeros(int(np.prod(shape)) * 4, np.uint8))
    return _tree(tensors, -1, -1, None)


def _tree(tensors: dict[str, Slice], generation: int, step: int, rank: int | None) -> dict[str, Any]:
    # A stage without tensors has no model: an empty dict would be a plain value.
    model = {"model": tensors} if tensors else {}
    return {**model, "generation": generation, "step": step, "mine": PerRank(rank)}


def difference(found: dict[str, Any], layout: Layout, rank: int, seed: int, step: int) -> str | None:
    """What is not as it was saved in the generation that ``found`` says it is, or ``None``."""
    if found["step"] != step:
        return f"rank {rank}: step {step} holds the values of step {found['step']}"
    wanted = state(layout, rank, seed, step, found["generation"]).get("model", {})
    wrong = [name for name, part in wanted.items() if not np.array_equal(part.array, found["model"][name].array)]
    return f"rank {rank}: step {step} has wrong bytes in {wrong}" if wrong else None


def _cut(spec: Spec, rank: int, rows: Any) -> Any:
    """The pieces of a rank, one after the other."""
    cut = [np.empty((0, 4), np.uint8)]
    for (row, column), (height, width), flat in spec.pieces(rank):
        elements = rows[row : row + height, column : column + width].reshape(-1, 4)
        cut.append(elements if flat is None else elements[slice(*flat)])
    return np.concatenate(cut).reshape(-1)


def is_tensor(value: object) -> bool:
    """Whether ``value`` is a slice."""
    return isinstance(value, Slice)


def part(value: object, path: str, context: Context) -> Part | None:
    """The slice as the engine takes it."""
    return Part(value.spec, value.array) if isinstance(value, Slice) else None


def node(value: object, path: str, context: Context) -> None:
    """Nothing here has a state of its own."""
