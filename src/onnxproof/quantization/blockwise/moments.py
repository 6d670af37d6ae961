"""Second moments of what is multiplied with each matrix: the mean of x x', added up batch by batch; no activation is kept."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.blockwise.matrices import Matrix
from onnxproof.quantization.calibration.batches import Batch
from onnxproof.runtimes import ort

Array = np.ndarray[Any, Any]
_MOST_BYTES = 1 << 30
"""Of moments that are held at once: with more, the data is passed over again for the next matrices (not measured)."""


def with_outputs(model: onnx.ModelProto, values: Sequence[str]) -> onnx.ModelProto:
    """The graph with other outputs: inner values by name."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.output[:]
    for value in values:
        changed.graph.output.append(
            onnx.helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, None)
        )
    return changed


def passes(matrices: Sequence[Matrix]) -> Iterator[list[Matrix]]:
    """Matrices whose moments fit into memory together, in the order of the graph."""
    group: list[Matrix] = []
    held: dict[str, int] = {}
    for matrix in matrices:
        held |= dict.fromkeys(matrix.inputs, 8 * matrix.columns**2)
        if group and sum(held.values()) > _MOST_BYTES:
            yield group
            group, held = [], dict.fromkeys(matrix.inputs, 8 * matrix.columns**2)
        group.append(matrix)
    if group:
        yield group


def second_moments(
    model: onnx.ModelProto,
    matrices: Sequence[Matrix],
    samples: Sequence[Batch],
    report_progress: Callable[[str], None],
) -> dict[str, Array]:
    """For each input value of the products, in float64."""
    values = list(dict.fromkeys(value for matrix in matrices for value in matrix.inputs))
    if not values:
        return {}
    session = ort.open_model(with_outputs(model, values), "basic")
    sums: dict[str, Array] = {}
    counts: dict[str, int] = dict.fromkeys(values, 0)
    for label, batch in samples:
        report_progress(f"inputs of the matrices: {label}")
        for value, array in zip(values, session.run(batch), strict=True):
            assert array is not None
            rows = array.reshape(-1, array.shape[-1])
            sums[value] = sums.get(value, 0.0) + (rows.T @ rows).astype(np.float64)
            counts[value] += len(rows)
    return {value: sums[value] / max(counts[value], 1) for value in values}


def moments_of(matrix: Matrix, moments: Mapping[str, Array]) -> Array | None:
    """The mean over all products that read the matrix; None where only lookups do."""
    known = [moments[value] for value in matrix.inputs if value in moments]
    if not known:
        return None
    return np.asarray(np.mean(known, axis=0))
