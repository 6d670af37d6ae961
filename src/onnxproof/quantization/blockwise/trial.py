"""One allocation of bits, built and measured; and what is said about several of them."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.blockwise.allocation import Allocation, Choice, efficient
from onnxproof.quantization.blockwise.form import Blocks
from onnxproof.quantization.blockwise.matrices import Matrix
from onnxproof.results.blocks import BlockPoint, MatrixCost

Array = np.ndarray[Any, Any]
_STATIONS = 64
"""Points of a path that a search by losses chooses from: six of them are built, since it halves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One allocation, built and measured."""

    allocation: Allocation
    rounded: Mapping[str, Blocks]
    model: onnx.ModelProto
    costs: Array
    """One number a sample."""

    @property
    def cost(self) -> float:
        """The mean."""
        return float(self.costs.mean())


def stations(sizes: Sequence[int]) -> list[int]:
    """A few places of a path, evenly spaced in bytes; the first and the last are among them.

    >>> stations([10, 11, 12, 20, 30, 80])
    [0, 2, 3, 4, 5]
    """
    wanted = np.linspace(sizes[0], sizes[-1], _STATIONS).tolist()
    return sorted({bisect_left(sizes, size) for size in wanted})


def mark_best(points: Sequence[BlockPoint]) -> tuple[BlockPoint, ...]:
    """Those that nothing beats in bytes, cost and latency are marked."""
    return tuple(
        replace(point, best=not any(_beats(other, point) for other in points)) for point in points
    )


def _beats(one: BlockPoint, other: BlockPoint) -> bool:
    first = (one.size, one.cost, one.latency_s)
    second = (other.size, other.cost, other.latency_s)
    return first != second and all(a <= b for a, b in zip(first, second, strict=True))


def matrix_costs(
    matrices: Sequence[Matrix], trial: Trial, choices: Mapping[str, Sequence[Choice]], unit: str
) -> Iterator[MatrixCost]:
    """Every matrix with its share of the cost, the costliest first, and what its next step buys."""
    estimated = trial.allocation.cost
    scale = trial.cost / estimated if estimated > 0 else 0.0
    chosen = trial.allocation.choices
    for matrix in sorted(matrices, key=lambda each: -chosen[each.name].cost):
        choice = chosen[matrix.name]
        further = [each for each in efficient(choices[matrix.name]) if each.size > choice.size]
        cost = MatrixCost(
            name=matrix.name,
            nodes=tuple(matrix.nodes),
            weights=matrix.rows * matrix.columns,
            form=str(choice.form),
            bits=8 * choice.size / (matrix.rows * matrix.columns),
            size=choice.size,
            cost=scale * choice.cost,
            unit=unit,
        )
        if further:
            cost = replace(
                cost,
                next_form=str(further[0].form),
                next_bytes=further[0].size - choice.size,
                next_saves=scale * (choice.cost - further[0].cost),
            )
        yield cost
