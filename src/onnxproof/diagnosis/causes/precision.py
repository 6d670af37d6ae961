"""Somewhere the numbers pass through a narrower type.

What it is: a cast to float16, bfloat16 or float32 (or to int32) on the way, or an accumulation in less than the
module's precision.

Why it happens: mixed-precision conversion, providers without float64 or int64, fast-math hints.

How to see it: with the narrowing cast taken out, the answers are right.

How to fix it: keep the node in the wider type, or take the mended file.

Example: unix timestamps cast to float32 lose the second within the day.
"""

from functools import partial

import onnx

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench, attribute
from onnxproof.results import Fix, Stage

TITLE = "numbers pass through a narrower type"
PRICE = 8
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


def test(bench: Workbench) -> Tried | str:
    """Take narrowing casts out; where the standard itself loses the digits, that is the cause."""
    if bench.where.stage is Stage.PRECISION and bench.guilty is not None:
        tried = _uncast(bench)
        read = bench.value(bench.guilty.input[0])
        whole = read is not None and read.dtype.kind in "iu"
        return (
            tried
            if isinstance(tried, Tried)
            else Tried(
                proven=True,
                after=0.0,
                code="integer-width" if whole else "precision",
                evidence=f"{bench.where.evidence}: {bench.where.nodes[0]} ({bench.guilty.op_type}) loses what it computes",
            )
        )
    return _uncast(bench)


def _uncast(bench: Workbench) -> Tried | str:
    """Take narrowing casts out: the located ones first, then each other, then all."""
    casts = [
        n
        for n in bench.model.graph.node
        if n.op_type == "Cast" and attribute(n, "to") in {**_FLOATS, **_INTEGERS}
    ]
    if not casts:
        return "the graph casts nothing to a narrower type"
    named = [n for n in casts if n.name in bench.where.nodes[:4]]
    for chosen in [*([n] for n in named), *([n] for n in casts if n not in named), casts][:24]:
        model = bench.edited(partial(_without, outputs={n.output[0] for n in chosen}))
        after = bench.distance(model)
        if bench.cured(after):
            kind = attribute(chosen[0], "to")
            names = ", ".join(n.name or n.output[0] for n in chosen[:3])
            return Tried(
                proven=True,
                after=after,
                model=model,
                code="integer-width" if kind in _INTEGERS else "precision",
                evidence=f"without the cast to {_FLOATS.get(kind) or _INTEGERS.get(kind)} at {names} the answers are right",
                fix=Fix(kind="graph", what=f"take out the cast {names}"),
            )
    return "no cast makes the difference"


def _without(graph: onnx.GraphProto, outputs: set[str]) -> None:
    for node in graph.node:
        if node.op_type == "Cast" and node.output[0] in outputs:
            node.op_type = "Identity"
            del node.attribute[:]
