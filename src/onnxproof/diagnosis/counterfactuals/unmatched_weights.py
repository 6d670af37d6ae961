"""Does the located node read a matrix that the module doesn't have, while the nodes of its kind read the module's own?

Then its weights are the first thing to try. In a file whose matrices were merged or folded none of them is the module's, and this says nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.counterfactuals.workbench import Array, Workbench
from onnxproof.onnxmodel import mapped_weights

_NEIGHBOURS = 4
"""Other nodes of the kind, the nearest, of which all must read the module's own matrices. Not measured."""
_SAME_SUM = 1e-9
"""Of the sum of the absolute values: the sums of the same numbers in another order differ by less, in float64."""


def reads_unmatched_matrix(workbench: Workbench) -> bool:
    """Whether the first suspect has such a matrix; the same numbers in another order are the module's own."""
    node, session = workbench.suspect, workbench.scene.reference.session
    if node is None or session is None or not hasattr(session.module, "parameters"):
        return False
    weights = {tensor.name: tensor for tensor in workbench.model.graph.initializer}
    unmatched = [m for m in _matrices(node, weights) if not _is_in(m, session.module)]
    if not unmatched:
        return False
    alike = [
        matrix
        for other in _nearest(workbench.model.graph, node)
        for matrix in _matrices(other, weights)
    ][:_NEIGHBOURS]
    return bool(alike) and all(_is_in(matrix, session.module) for matrix in alike)


def _matrices(node: onnx.NodeProto, weights: dict[str, onnx.TensorProto]) -> Iterator[Array]:
    for name in node.input:
        tensor = weights.get(name)
        if tensor is not None and len(tensor.dims) >= 2:
            array = mapped_weights.to_array(tensor)
            if array.dtype.kind == "f":
                yield array


def _nearest(graph: onnx.GraphProto, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Other nodes of the same operator, the nearest first."""
    here = next(
        place for place, other in enumerate(graph.node) if other.output[0] == node.output[0]
    )
    places = [
        place
        for place, other in enumerate(graph.node)
        if other.op_type == node.op_type and place != here
    ]
    return [graph.node[place] for place in sorted(places, key=lambda place: abs(place - here))]


def _is_in(matrix: Array, module: Any) -> bool:
    """Whether a parameter of the module has these numbers, in whatever order."""
    total, scale = _sums(matrix)
    parameters: Iterable[Any] = module.parameters()
    for parameter in parameters:
        if parameter.numel() == matrix.size and parameter.is_floating_point():
            other = float(parameter.detach().double().sum())
            if abs(other - total) <= _SAME_SUM * scale:
                return True
    return False


def _sums(matrix: Array) -> tuple[float, float]:
    wide = matrix.astype(np.float64)
    return float(wide.sum()), float(np.abs(wide).sum())
