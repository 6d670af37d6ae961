"""What may be wrong inside one fused operator: an attribute, a constant, or which value it reads in which place.

The changes are tried on the node alone first, by the standard on the values that it reads: what it should give is known from the module. Only changes
that bring it near are tried in the whole file.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals.fused_constants import NodeChange, other_constants
from onnxproof.diagnosis.counterfactuals.module_numbers import module_numbers
from onnxproof.diagnosis.counterfactuals.other_values import values_before
from onnxproof.diagnosis.counterfactuals.standard_evaluation import standard_values_of
from onnxproof.diagnosis.counterfactuals.workbench import (
    Array,
    Tried,
    Workbench,
    attribute_value,
    node_name,
    node_with_output,
)
from onnxproof.diagnosis.locate.experiment import reshape_like
from onnxproof.diagnosis.locate.match import match
from onnxproof.errors import OnnxproofError
from onnxproof.numerics.relative_error import relative_error
from onnxproof.numerics.sketch import sketch
from onnxproof.runtimes import reference
from onnxproof.runtimes.evaluator.contrib import nchwc
from onnxproof.runtimes.reference import add_outputs
from onnxproof.runtimes.session.execution import feed

_MOST_TRIED = 4
"""Changes of a node that are tried in the whole file, the nearest first. Not measured."""
_MOST_VALUES = 24
"""Values before a node that it may read instead. Not measured."""
_ATTENTION = ("num_heads", "scale")
ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "Attention": (*_ATTENTION, "unidirectional", "do_rotary"),
    "MultiHeadAttention": (*_ATTENTION, "unidirectional"),
    "GroupQueryAttention": (
        *_ATTENTION,
        "local_window_size",
        "softcap",
        "do_rotary",
        "rotary_interleaved",
        "smooth_softmax",
        "causal",
    ),
    "RotaryEmbedding": ("interleaved", "num_heads", "scale"),
    "SkipLayerNormalization": ("epsilon",),
    "EmbedLayerNormalization": ("epsilon",),
    "SkipSimplifiedLayerNormalization": ("epsilon",),
    "SimplifiedLayerNormalization": ("epsilon", "axis"),
    "GroupNorm": ("epsilon", "groups", "activation"),
    "FusedMatMul": ("alpha", "transA", "transB", "transBatchA", "transBatchB"),
    "FusedGemm": ("alpha", "beta", "activation", "transA", "transB"),
    "FusedConv": ("activation", "pads", "strides"),
    "Conv": ("activation", "pads", "strides"),
    "QuickGelu": ("alpha",),
}
"""What is looked at in each fused operator: the ONNX operators have schemas that say it."""
_FLAGS = (
    "unidirectional",
    "do_rotary",
    "rotary_interleaved",
    "interleaved",
    "smooth_softmax",
    "causal",
    "transA",
    "transB",
    "transBatchA",
    "transBatchB",
)
_COUNTS = ("num_heads", "groups")
_FRACTIONS = ("scale", "softcap", "epsilon", "alpha", "beta")
_ACTIVATIONS = (None, "Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid")
_MOST_HEADS = 128
_CODES = {
    "unidirectional": "masking",
    "causal": "masking",
    "local_window_size": "masking",
    "do_rotary": "position",
}
"""What an attribute is called that is more than a number."""
_MASKS = {"Attention": (3, 5), "MultiHeadAttention": (4, 5), "GroupQueryAttention": (10,)}
"""The places of masks and biases among an attention's inputs."""
_OPERANDS = {"MultiHeadAttention": 3, "GroupQueryAttention": 3}
"""How many of the first inputs are of one kind, and may be exchanged."""


def is_fused(node: onnx.NodeProto) -> bool:
    """Whether a node is one of those that ONNX Runtime's fusions make."""
    return node.op_type in ATTRIBUTES and (bool(node.domain) or "Simplified" in node.op_type)


def try_fused_operators(workbench: Workbench) -> Tried | str:
    """The first located nodes that are fused operators, each with every change that may mend it."""
    fused = [node for node in workbench.nodes[: limits.SUSPECTS_COMPARED] if is_fused(node)]
    if not fused:
        return "no fused operator was located"
    for node, family in itertools.product(fused, _FAMILIES):
        for change in _most_promising(workbench, node, list(family(workbench, node))):
            tried = _try(workbench, node, change)
            if tried is not None:
                return tried
    return "no attribute, constant or input of the fused operators mends it"


def _try(workbench: Workbench, node: onnx.NodeProto, change: NodeChange) -> Tried | None:
    def edit(graph: onnx.GraphProto) -> None:
        changed = node_with_output(graph, node.output[0])
        for name, array in change.apply(changed).items():
            graph.initializer.append(numpy_helper.from_array(np.array(array), name))
        if change.cast:
            _insert_casts(graph, changed, change.inputs)

    return workbench.try_model(
        workbench.with_graph(edit),
        evidence=f"{node_name(node)} ({node.op_type}): {change.what}; so the answers are right",
        fix=f"{change.fix} of {node_name(node)}",
        code=change.code,
    )


def _insert_casts(graph: onnx.GraphProto, node: onnx.NodeProto, inputs: Mapping[int, str]) -> None:
    """Read these inputs as int32."""
    place_of_node = list(graph.node).index(node)
    for place, name in inputs.items():
        narrow = f"{node.output[0]}_mended_{place}_int32"
        cast = onnx.helper.make_node("Cast", [name], [narrow], to=onnx.TensorProto.INT32)
        node.input[place] = narrow
        graph.node.insert(place_of_node, cast)


def _most_promising(
    workbench: Workbench, node: onnx.NodeProto, changes: Sequence[NodeChange]
) -> list[NodeChange]:
    """The changes with which the node alone is nearest to what the module computes there, or to any value of the module."""
    if not changes:
        return []
    entry = workbench.counterpart(node)
    truth = None if entry is None else workbench.located.fetch(entry.place)
    names = {name for name in node.input if name}
    names |= {name for change in changes for name in change.inputs.values() if name}
    values = _values(workbench, node, sorted(names))
    own = _error(workbench, node, NodeChange(what="", fix="", code=""), values, truth)
    ranked: list[tuple[float, int, NodeChange]] = []
    for change in changes:
        if workbench.late:
            break
        error = _error(workbench, node, change, values, truth)
        if error * limits.LIKELY_IMPROVEMENT < own:
            ranked.append((error, len(ranked), change))
    return [change for _, _, change in sorted(ranked, key=lambda one: one[:2])[:_MOST_TRIED]]


def _values(workbench: Workbench, node: onnx.NodeProto, names: list[str]) -> dict[str, Array]:
    """What the node may read: as the runtime has it, or by the standard where the runtime keeps it in blocks of channels."""
    if node.domain != nchwc.DOMAIN:
        return workbench.values(names)
    constants = {tensor.name for tensor in workbench.model.graph.initializer}
    feeds = feed(workbench.scene.case.inputs, workbench.scene.signature)
    inner = [name for name in names if name not in feeds and name not in constants]
    model = workbench.copy_model()
    add_outputs(model, inner)
    session = reference.open(model.SerializeToString())
    computed = dict(zip(session.output_names, session.run(feeds), strict=True))
    found = {name: array for name, array in computed.items() if array is not None}
    return found | workbench.values([name for name in names if name not in inner])


def _error(
    workbench: Workbench,
    node: onnx.NodeProto,
    change: NodeChange,
    values: Mapping[str, Array],
    truth: Array | None,
) -> float:
    """How far the changed node, by the standard, is from the module's value there, or from the nearest of all where that is not known."""
    changed = onnx.NodeProto()
    changed.CopyFrom(node)
    added = change.apply(changed)
    if any(name and name not in values and name not in added for name in changed.input):
        return float("inf")
    known = {**values, **added}
    inputs = {name: known[name] for name in changed.input if name}
    try:
        computed = standard_values_of(workbench, [changed], inputs)
    except (OnnxproofError, ValueError):
        return float("inf")
    outputs = [computed[name] for name in node.output if name in computed]
    return min((_distance(workbench, output, truth) for output in outputs), default=float("inf"))


def _distance(workbench: Workbench, output: Array, truth: Array | None) -> float:
    """How far an output is from the nearest value of the module, and from the one that belongs there."""
    nearest = _nearest(workbench, output)
    if truth is None:
        return nearest
    return min(nearest, relative_error(output, reshape_like(output, truth)))


def _nearest(workbench: Workbench, output: Array) -> float:
    """How far a value is from the nearest of the module's, in whatever layout."""
    return match({"": sketch(output)}, workbench.located.traced_values)[""].gap


# ---- attributes


def _other_attributes(workbench: Workbench, node: onnx.NodeProto) -> Iterator[NodeChange]:
    numbers = module_numbers(workbench, node)
    for name in ATTRIBUTES[node.op_type]:
        present = attribute_value(node, name)
        for other in _other_values(name, present, numbers):
            if other != present:
                yield NodeChange(
                    what=f"`{name}` is {_words(present)} and should be {_words(other)}",
                    fix=f"set `{name}` to {_words(other)}: an attribute",
                    code=_CODES.get(name, "attribute"),
                    attributes={name: other},
                )


def _other_values(name: str, present: Any, numbers: Sequence[float]) -> list[Any]:
    if name in _FLAGS:
        return [1 - int(present or 0)]
    if name in _FRACTIONS:
        return [None, *numbers, 0.0]
    if name in ("pads", "strides") and present:
        return [list(present[::-1]), [1] * len(present), [0] * len(present), [2] * len(present)]
    if name == "activation":
        return list(_ACTIVATIONS)
    return _other_counts(name, numbers)


def _other_counts(name: str, numbers: Sequence[float]) -> list[Any]:
    """Heads, groups, or the places of a window."""
    if name in _COUNTS:
        return [count for count in range(1, _MOST_HEADS + 1) if _is_divisor(count, numbers)]
    if name != "local_window_size":
        return []
    large = [int(n) for n in numbers if n > 64 and n == int(n)]
    return [-1, *range(1, 65), *large]


def _is_divisor(count: int, numbers: Sequence[float]) -> bool:
    """Every number up to 16, and what the module's own numbers have."""
    return count <= 16 or float(count) in numbers


def _words(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, bytes):
        return value.decode()
    return str(value)


# ---- which values are read


def _other_inputs(workbench: Workbench, node: onnx.NodeProto) -> Iterator[NodeChange]:
    """Operands of one kind exchanged, or another value before the node in the place of one."""
    for left, right in itertools.combinations(range(_OPERANDS.get(node.op_type, 0)), 2):
        if node.input[left] and node.input[right]:
            yield NodeChange(
                what=f"inputs {left} and {right} are exchanged",
                fix=f"exchange inputs {left} and {right}",
                code="input-order",
                inputs={left: node.input[right], right: node.input[left]},
            )
    constants = {tensor.name for tensor in workbench.model.graph.initializer}
    read = set(node.input)
    before = [name for name in values_before(workbench, node) if name not in read]
    for place in range(min(2, len(node.input))):
        if not node.input[place] or node.input[place] in constants:
            continue
        for name in before[:_MOST_VALUES]:
            yield NodeChange(
                what=f"it reads `{node.input[place]}` at place {place} and should read `{name}`",
                fix=f"read `{name}` at place {place}",
                code="axis-order",
                inputs={place: name},
            )


def _other_masks(workbench: Workbench, node: onnx.NodeProto) -> Iterator[NodeChange]:
    """A mask where there is none: what nodes of this kind read, and the model's own inputs of whole numbers."""
    graph = workbench.model.graph
    siblings = [other for other in graph.node if other.op_type == node.op_type]
    for place in _MASKS.get(node.op_type, ()):
        present = _read_at(node, place)
        for name in dict.fromkeys(_read_at(other, place) for other in siblings):
            if name and name != present:
                yield _mask_change(place, name, cast=False)
        for port in graph.input:
            kind = port.type.tensor_type
            if kind.elem_type == onnx.TensorProto.INT64 and len(kind.shape.dim) == 2:
                yield _mask_change(place, port.name, cast=True)


def _read_at(node: onnx.NodeProto, place: int) -> str:
    """What a node reads at a place; empty where it reads nothing."""
    return "".join(node.input[place : place + 1])


def _mask_change(place: int, name: str, *, cast: bool) -> NodeChange:
    return NodeChange(
        what=f"it does not read the mask `{name}`",
        fix=f"read `{name}` as the mask",
        code="masking",
        inputs={place: name},
        cast=cast,
    )


_FAMILIES = (other_constants, _other_attributes, _other_masks, _other_inputs)
"""The changes, those first of which there are fewest."""
__all__ = ["NodeChange", "is_fused", "try_fused_operators"]
