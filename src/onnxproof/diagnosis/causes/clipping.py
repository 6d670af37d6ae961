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

import numpy as np
import onnx

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals.changed_reference import Variant, skip_call, with_arguments
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench, node_name
from onnxproof.reference.traced_value import TracedValue

TITLE = "a bound was dropped or moved"
PRICE = 18
CODES = ("clipping", "missing-op")
_MOST_BOUNDS = 16
"""Pairs of bounds that are tried. Not measured."""
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
_OTHER_ACTIVATIONS = frozenset(
    {"Elu", "Selu", "Celu", "LeakyRelu", "PRelu", "Gelu", "Softplus", "Mish", "HardSwish", "Swish"}
)
"""Clipped at 0 some of them are a Relu: that is another function in its place, not a lost bound."""
Bounds = tuple[float | None, float | None]


def test(workbench: Workbench) -> Tried | str:
    """Take the module's bounds away, and put them back into the file."""
    return workbench.try_in_reference(_variants, remedy=lambda: _clip_nodes(workbench))


def _clip_nodes(workbench: Workbench) -> Tried | str:
    """Clip at the module's own bounds: in the place of the located Clip, or behind the located node."""
    bounds = list(dict.fromkeys(_module_bounds(workbench)))
    for node in workbench.nodes[: limits.SUSPECTS_REPLACED]:
        if node.op_type in _OTHER_ACTIVATIONS:
            break
        name = node_name(node)
        for low, high in bounds[:_MOST_BOUNDS]:
            tried = workbench.try_model(
                workbench.with_graph(partial(_clip, node=node, low=low, high=high)),
                evidence=f"with a Clip to [{low}, {high}] at {name} the answers are right",
                fix=f"clip {name} to [{low}, {high}]",
            )
            if tried is not None:
                return tried
    return "no bound of the module mends a named node"


def _variants(entry: TracedValue) -> Iterator[Variant]:
    if entry.op not in _CLAMPS:
        return
    code = "missing-op" if entry.op.startswith("relu") and "6" not in entry.op else ""
    yield Variant(what="left out", change=skip_call(), code=code)
    for name in ("min", "max", "min_val", "max_val"):
        if entry.arguments.get(name) is not None:
            yield Variant(
                what=f"without its bound {name}={entry.arguments[name]}",
                change=with_arguments(**{name: None}),
            )


def _module_bounds(workbench: Workbench) -> Iterator[Bounds]:
    for entry in workbench.located.traced_values:
        if entry.op not in _CLAMPS:
            continue
        arguments = entry.arguments
        low = arguments.get("min", arguments.get("min_val"))
        high = arguments.get("max", arguments.get("max_val"))
        if entry.op == "relu":
            low = 0.0
        if low is not None or high is not None:
            yield low, high


def _clip(
    graph: onnx.GraphProto, node: onnx.NodeProto, low: float | None, high: float | None
) -> None:
    """Replace a Clip or Relu by one with these bounds; put one behind any other node."""
    bounds = [_add_bound(graph, f"{node.output[0]}_low", low)]
    bounds.append(_add_bound(graph, f"{node.output[0]}_high", high))
    place = [n.output[0] for n in graph.node].index(node.output[0])
    changed = graph.node[place]
    if node.op_type in ("Clip", "Relu"):
        changed.op_type = "Clip"
        del changed.attribute[:]
        del changed.input[1:]
        changed.input.extend(bounds)
        return
    unclipped = f"{node.output[0]}_unclipped"
    changed.output[0] = unclipped
    clip = onnx.helper.make_node("Clip", [unclipped, *bounds], [node.output[0]])
    graph.node.insert(place + 1, clip)


def _add_bound(graph: onnx.GraphProto, name: str, bound: float | None) -> str:
    """The name of a new constant; empty where there is no bound."""
    if bound is None:
        return ""
    graph.initializer.append(onnx.numpy_helper.from_array(np.array(bound, np.float32), name))
    return name
