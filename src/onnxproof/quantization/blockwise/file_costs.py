"""What each matrix of a file in few bits costs, whoever made the file, what in it costs it, and what a better form of it would save.

1. The file's graph with the reference's own numbers in the place of its blocks is what the costs are measured against (`float_twin`).
2. Each matrix alone gets the file's numbers: KL of the next token, or the share of noise in the outputs. Those whose products are farthest off come first; where time ends, the rest is
   estimated by the error of its products.
3. Scales, zero points, integers, rows and blocks (`block_errors`).
4. The next step of each matrix: the same form rounded anew, or 8 bits. That of the costliest ones is put in and measured.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.blockwise.block_errors import error_of, parts_of
from onnxproof.quantization.blockwise.float_twin import (
    StoredMatrix,
    float_twin,
    multiplied_matrices,
    with_numbers,
)
from onnxproof.quantization.blockwise.form import Blocks, Form
from onnxproof.quantization.blockwise.judge import Judge
from onnxproof.quantization.blockwise.moments import moments_of, second_moments
from onnxproof.quantization.blockwise.rounding import damp, nearest_blocks, round_matrix
from onnxproof.quantization.calibration.batches import Batch
from onnxproof.results.blocks import MatrixCost
from onnxproof.system.deadline import Deadline

Array = np.ndarray[Any, Any]
MOST_BYTES = 1 << 30
"""Of a float graph that is built to measure costs with: every trial is a copy of it (not measured)."""
_MOST_ANEW = 8
"""Matrices, the costliest ones, whose next step is looked for."""
_LONGEST = 2048
"""Columns up to which a matrix is rounded anew: the time of it grows with their cube (not measured)."""
_MOST_OF_COST = 0.8
"""The matrices that a fix changes make up this share of the cost."""
_WORTH_ROUNDING = 0.5
"""Rounding anew is the next step where it saves this share; else more bits are (not measured)."""
_SHORTEST = 16
"""Members of the shortest block that MatMulNBits knows."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A better form of one matrix."""

    matrix: StoredMatrix
    blocks: Blocks
    words: str
    left: float
    """Of its error."""


@dataclass(frozen=True, kw_only=True)
class FileCosts:
    """Of a whole file."""

    unit: str
    total: float
    matrices: tuple[MatrixCost, ...]
    """The costliest first."""
    steps: tuple[Step, ...] = ()
    """Of the costliest ones."""
    total_after: float | None = None
    """With these steps; None where there are none."""


def measure(
    model: onnx.ModelProto,
    matrices: Sequence[StoredMatrix],
    samples: Sequence[Batch],
    deadline: Deadline,
) -> FileCosts:
    """Steps 1 to 4."""
    twin = float_twin(model, matrices, own=True)  # step 1
    judge = Judge(twin, samples, None)
    moments = _moments(twin, matrices, samples)
    total = judge.cost(float_twin(model, matrices, own=False))
    errors = {each.name: _relative_error(each, moments[each.name]) for each in matrices}
    costs, measured = _alone(twin, judge, matrices, errors, deadline)  # step 2
    scale = total / max(sum(costs.values()), 1e-30)
    ordered = sorted(matrices, key=lambda each: -costs[each.name])
    found = [
        MatrixCost(
            name=each.name,
            nodes=tuple(weight.name for weight in each.weights),
            weights=each.plain.size,
            form=_form_in_words(each),
            bits=8 * each.weight.storage.size / each.plain.size,
            size=each.weight.storage.size,
            cost=scale * costs[each.name],
            unit=judge.unit,
            measured=each.name in measured,
            parts=tuple(  # step 3
                parts_of(each.weight, each.plain, moments[each.name], scale * costs[each.name])
            ),
        )
        for each in ordered
    ]
    steps = _steps(ordered, found, moments, deadline)  # step 4
    found = [_with_step(each, steps) for each in found]
    return _with_fix(
        FileCosts(unit=judge.unit, total=total, matrices=tuple(found)),
        model,
        matrices,
        steps,
        judge,
    )


def _moments(
    twin: onnx.ModelProto, matrices: Sequence[StoredMatrix], samples: Sequence[Batch]
) -> dict[str, Array]:
    """Of what is multiplied with each matrix; tables, and products that read them through other nodes, weigh all columns alike."""
    plain = multiplied_matrices(twin, matrices)
    seen = second_moments(twin, plain, samples, lambda words: None)
    found = {}
    for matrix in plain:
        weighing = moments_of(matrix, seen)
        found[matrix.name] = np.eye(matrix.columns) if weighing is None else damp(weighing)
    return found


def _relative_error(each: StoredMatrix, moments: Array) -> float:
    size = error_of(each.plain.astype(np.float64), moments)
    return error_of(each.weight.floats - each.plain, moments) / max(size, 1e-30)


def _alone(
    twin: onnx.ModelProto,
    judge: Judge,
    matrices: Sequence[StoredMatrix],
    errors: Mapping[str, float],
    deadline: Deadline,
) -> tuple[dict[str, float], set[str]]:
    """The cost of every matrix, and the names of those that were measured."""
    costs: dict[str, float] = {}
    for each in sorted(matrices, key=lambda one: -errors[one.name]):
        if costs and deadline.passed:
            break
        numbers = {weight: weight.floats for weight in each.weights}
        costs[each.name] = max(judge.cost(with_numbers(twin, numbers)), 0.0)
    rate = statistics.median(cost / max(errors[name], 1e-30) for name, cost in costs.items())
    estimated = {name: rate * error for name, error in errors.items() if name not in costs}
    return costs | estimated, set(costs)


def _form_in_words(each: StoredMatrix) -> str:
    packing = each.weight.packing
    words = f"{packing.bits} bits, blocks of {packing.block}"
    if each.weight.zeros is not None:
        words += " with zero points"
    return f"{words}, grouped" if each.weight.groups is not None else words


def _steps(
    ordered: Sequence[StoredMatrix],
    costs: Sequence[MatrixCost],
    moments: Mapping[str, Array],
    deadline: Deadline,
) -> list[Step]:
    """The next step of the costliest matrices."""
    steps = []
    for each, cost in list(zip(ordered, costs, strict=True))[:_MOST_ANEW]:
        if deadline.passed or cost.cost <= 0:
            break
        step = _next_step(each, moments[each.name])
        if step is not None:
            steps.append(step)
    return steps


def _next_step(each: StoredMatrix, moments: Array) -> Step | None:
    whole = error_of(each.weight.floats - each.plain, moments)
    packing = each.weight.packing
    if whole <= 0 or packing.block < _SHORTEST:
        return None
    form = Form(bits=packing.bits, block=packing.block, zero_points=each.weight.zeros is not None)
    if packing.columns <= _LONGEST and packing.bits in (2, 4, 8):
        blocks = round_matrix(each.plain, form, moments)
        left = error_of(blocks.values() - each.plain, moments) / whole
        if left <= 1 - _WORTH_ROUNDING or packing.bits == 8:
            words = "rounded anew"
            return Step(matrix=each, blocks=blocks, words=words, left=left) if left < 1 else None
    finer = Form(bits=8, block=packing.block)
    blocks = nearest_blocks(each.plain, finer, np.diagonal(moments))
    left = error_of(blocks.values() - each.plain, moments) / whole
    return Step(matrix=each, blocks=blocks, words=str(finer), left=left)


def _with_step(cost: MatrixCost, steps: Sequence[Step]) -> MatrixCost:
    step = next((step for step in steps if step.matrix.name == cost.name), None)
    if step is None:
        return cost
    rows, columns = step.matrix.weight.shape
    return replace(
        cost,
        next_form=step.words,
        next_bytes=max(0, step.blocks.form.size(rows, columns) - cost.size),
        next_saves=cost.cost * (1 - step.left),
    )


def _with_fix(
    costs: FileCosts,
    model: onnx.ModelProto,
    matrices: Sequence[StoredMatrix],
    steps: Sequence[Step],
    judge: Judge,
) -> FileCosts:
    """The steps of as many matrices as make up most of the cost, put in and measured."""
    by_name = {step.matrix.name: step for step in steps}
    chosen: list[Step] = []
    covered = 0.0
    for each in costs.matrices:
        if covered >= _MOST_OF_COST * costs.total or each.name not in by_name:
            break
        chosen.append(by_name[each.name])
        covered += each.cost
    if not chosen:
        return costs
    numbers = {w: step.blocks.values() for step in chosen for w in step.matrix.weights}
    twin = float_twin(model, matrices, own=False)
    after = judge.cost(with_numbers(twin, numbers))
    return replace(costs, steps=tuple(chosen), total_after=after)
