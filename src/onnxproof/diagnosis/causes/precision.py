"""Somewhere the numbers pass through a narrower type.

What it is: a cast to float16, bfloat16 or float32 (or to int32) on the way, or an accumulation in less than the
module's precision.

Why it happens: mixed-precision conversion, providers without float64 or int64, fast-math hints.

How to see it: with the narrowing cast taken out, the answers are right.

How to fix it: keep the node in the wider type, or take the mended file.

Example: unix timestamps cast to float32 lose the second within the day. A split of a tree at a float64 that no float32 is: rounded up, it
moves the samples between to another leaf; and so do float64 inputs that the file takes as float32.
"""

from collections.abc import Iterator
from functools import partial

import onnx

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals import standard_evaluation, tree_splits
from onnxproof.diagnosis.counterfactuals.workbench import (
    Tried,
    Workbench,
    attribute_value,
    node_name,
)
from onnxproof.results import Stage

TITLE = "numbers pass through a narrower type"
PRICE = 8
CODES = ("precision", "integer-width")
_FLOATS = {
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.BFLOAT16: "bfloat16",
    onnx.TensorProto.FLOAT: "float32",
}
_INTEGERS = {
    onnx.TensorProto.INT32: "int32",
    onnx.TensorProto.INT16: "int16",
    onnx.TensorProto.INT8: "int8",
    onnx.TensorProto.UINT8: "uint8",
}
_MOST_TRIALS = 24
"""Casts that are taken out one by one. Not measured."""


def test(workbench: Workbench) -> Tried | str:
    """Take narrowing casts out; where the standard itself loses the digits, that is the cause."""
    tried = tree_splits.try_narrow_inputs(workbench)
    if not isinstance(tried, Tried) and tree_splits.has_trees(workbench):
        tried = tree_splits.try_rounded_thresholds(workbench)
    if not isinstance(tried, Tried):
        tried = _remove_casts(workbench)
    if isinstance(tried, Tried) or workbench.location.stage is not Stage.PRECISION:
        return tried
    suspect = workbench.suspect
    if suspect is None:
        return tried
    code = "precision"
    read = workbench.value(suspect.input[0])
    if read is not None and read.dtype.kind in "iu":
        code = "integer-width"
    location = workbench.location
    what = f"{location.nodes[0]} ({suspect.op_type}) loses what it computes"
    wide = workbench.try_counterfactual(
        standard_evaluation.in_float64(workbench),
        f"{what}: with every operator of the file in float64 the answers are right",
        code=code,
    )
    if wide is not None:
        return wide
    return Tried(code=code, evidence=f"{location.evidence}: {what}")


def _remove_casts(workbench: Workbench) -> Tried | str:
    casts = [node for node in workbench.model.graph.node if _is_narrowing(node)]
    if not casts:
        return "the graph casts nothing to a narrower type"
    for removed in list(_groups(workbench, casts))[:_MOST_TRIALS]:
        outputs = {node.output[0] for node in removed}
        dtype = attribute_value(removed[0], "to")
        dtype_name = _FLOATS.get(dtype) or _INTEGERS.get(dtype)
        names = ", ".join(node_name(node) for node in removed[:3])
        tried = workbench.try_model(
            workbench.with_graph(partial(_replace_by_identity, outputs=outputs)),
            code="integer-width" if dtype in _INTEGERS else "precision",
            evidence=f"without the cast to {dtype_name} at {names} the answers are right",
            fix=f"take out the cast {names}",
        )
        if tried is not None:
            return tried
    return "no cast makes the difference"


def _is_narrowing(node: onnx.NodeProto) -> bool:
    if node.op_type != "Cast":
        return False
    dtype = attribute_value(node, "to")
    return dtype in _FLOATS or dtype in _INTEGERS


def _groups(workbench: Workbench, casts: list[onnx.NodeProto]) -> Iterator[list[onnx.NodeProto]]:
    """The located casts first, then each other, then all."""
    located = [
        node for node in casts if node.name in workbench.location.nodes[: limits.SUSPECTS_REPLACED]
    ]
    for node in located:
        yield [node]
    for node in casts:
        if node not in located:
            yield [node]
    yield casts


def _replace_by_identity(graph: onnx.GraphProto, outputs: set[str]) -> None:
    for node in graph.node:
        if node.op_type == "Cast" and node.output[0] in outputs:
            node.op_type = "Identity"
            del node.attribute[:]
