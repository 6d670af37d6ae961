"""A bound was dropped or moved.

What it is: a clamp, a ReLU6 or a guard against zero is missing from the file or has other limits, so that only values
beyond them show it.

Why it happens: limits of another type are truncated, guards are "simplified" away, tiny constants vanish in a
conversion.

How to see it: with the module's bounds put behind the node, the answers are right.

How to fix it: take the mended file; write guards with `clamp(min=...)` rather than `+ 1e-8`.

Example: ReLU6 written as ReLU.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.results import Fix

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant
    from onnxproof.reference.traced_value import TracedValue

TITLE = "a bound was dropped or moved"
PRICE = 18
_CLAMPS = (
    "clamp",
    "clamp_",
    "clamp_min",
    "clamp_max",
    "clamp_min_",
    "clamp_max_",
    "hardtanh",
    "hardtanh_",
    "relu6",
    "clip",
    "relu",
)


def test(bench: Workbench) -> Tried | str:
    """Take the module's bounds away, and put them back into the file."""
    return bench.whatif(_variants, cure=lambda: _clipped(bench))


def _clipped(bench: Workbench) -> Tried | str:
    """Clip at the module's own bounds: in the place of the located Clip, or behind the located node."""
    bounds = list(dict.fromkeys(_bounds(bench)))
    for node in bench.nodes[:4]:
        for low, high in bounds[:16]:
            model = bench.edited(partial(_clip, node=node, low=low, high=high))
            after = bench.distance(model)
            if bench.cured(after):
                return Tried(
                    proven=True,
                    after=after,
                    model=model,
                    evidence=f"with a Clip to [{low}, {high}] at {node.name or node.output[0]} the answers are right",
                    fix=Fix(
                        kind="graph", what=f"clip {node.name or node.output[0]} to [{low}, {high}]"
                    ),
                )
    return "no bound of the module mends a named node"


def _variants(entry: "TracedValue") -> "Iterator[Variant]":
    from onnxproof.diagnosis.counterfactuals.changed_reference import (
        Variant,
        skipped,
        with_arguments,
    )

    if entry.op in _CLAMPS:
        yield Variant(what="left out", change=skipped())
        for name in ("min", "max", "min_val", "max_val"):
            if entry.arguments.get(name) is not None:
                yield Variant(
                    what=f"without its bound {name}={entry.arguments[name]}",
                    change=with_arguments(**{name: None}),
                )


def _bounds(bench: Workbench) -> list[tuple[float | None, float | None]]:
    found: list[tuple[float | None, float | None]] = []
    for entry in bench.located.traced_values:
        if entry.op in _CLAMPS:
            a = entry.arguments
            low, high = a.get("min", a.get("min_val")), a.get("max", a.get("max_val"))
            found.append((0.0 if entry.op == "relu" else low, high))
    return [(low, high) for low, high in found if low is not None or high is not None]


def _clip(
    graph: onnx.GraphProto, node: onnx.NodeProto, low: float | None, high: float | None
) -> None:
    """Replace a Clip or Relu by one with these bounds; put one behind any other node."""
    place = [n.output[0] for n in graph.node].index(node.output[0])
    names = []
    for label, bound in (("low", low), ("high", high)):
        names.append(f"{node.output[0]}_{label}" if bound is not None else "")
        if bound is not None:
            graph.initializer.append(
                onnx.numpy_helper.from_array(np.array(bound, np.float32), names[-1])
            )
    if node.op_type in ("Clip", "Relu"):
        graph.node[place].op_type = "Clip"
        del graph.node[place].attribute[:]
        del graph.node[place].input[1:]
        graph.node[place].input.extend(names)
        return
    before = f"{node.output[0]}_unclipped"
    graph.node[place].output[0] = before
    graph.node.insert(place + 1, onnx.helper.make_node("Clip", [before, *names], [node.output[0]]))
