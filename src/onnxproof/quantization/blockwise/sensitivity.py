"""What each matrix costs alone: measured once, then estimated for every other form by the error of its products."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.blockwise.allocation import Choice
from onnxproof.quantization.blockwise.assemble import assemble
from onnxproof.quantization.blockwise.form import Blocks, Form
from onnxproof.quantization.blockwise.matrices import Matrix
from onnxproof.quantization.blockwise.moments import moments_of
from onnxproof.quantization.blockwise.rounding import damp, nearest_blocks, product_error
from onnxproof.quantization.float_graph import Index

Array = np.ndarray[Any, Any]
PROBE = Form(bits=4, block=64)
"""The form in which each matrix is measured alone: rounded to the nearest, since only the ratio to the error of its products is wanted."""
_BLOCKS = (16, 32, 64, 128)


def forms_of(matrix: Matrix, bits: Sequence[int]) -> list[Form]:
    """The forms that are tried; the blocks of a table must fill its rows."""
    forms = [
        Form(bits=each, block=block, zero_points=zero_points)
        for each in bits
        for block in _BLOCKS
        for zero_points in (False, True)
        if each < 8 or (block in (32, 128) and not zero_points)
    ]
    if matrix.lookups:
        forms = [form for form in forms if matrix.columns % form.block == 0]
    return forms


def measure_choices(
    model: onnx.ModelProto,
    matrix: Matrix,
    moments: Mapping[str, Array],
    bits: Sequence[int],
    cost_of: Callable[[onnx.ModelProto], float] | None,
) -> list[Choice]:
    """The bytes and the estimated cost of each form; without `cost_of` the error of the products, relative to them, is the cost."""
    weights = matrix.weights(Index(model))
    weighing = moments_of(matrix, moments)
    if weighing is None:
        weighing = np.eye(matrix.columns)
    weighing = damp(weighing)
    if cost_of is None:
        rate = 1.0 / max(float(np.einsum("ij,ij->", weights @ weighing, weights)), 1e-30)
    else:
        rate = _measured_rate(model, matrix, weighing, cost_of)
    return [
        Choice(
            form=form,
            size=form.size(matrix.rows, matrix.columns),
            cost=rate * product_error(weights, _nearest(weights, form, weighing), weighing),
        )
        for form in forms_of(matrix, bits)
    ]


def _nearest(weights: Array, form: Form, weighing: Array) -> Blocks:
    return nearest_blocks(weights, form, np.diagonal(weighing))


def _measured_rate(
    model: onnx.ModelProto,
    matrix: Matrix,
    weighing: Array,
    cost_of: Callable[[onnx.ModelProto], float],
) -> float:
    """The measured cost of the matrix alone, for each unit of its products' error."""
    form = PROBE
    if matrix.lookups and matrix.columns % form.block:
        form = forms_of(matrix, (4,))[0]
    weights = matrix.weights(Index(model))
    blocks = _nearest(weights, form, weighing)
    measured = cost_of(assemble(model, [matrix], {matrix.name: blocks}))
    return max(measured, 0.0) / max(product_error(weights, blocks, weighing), 1e-30)
