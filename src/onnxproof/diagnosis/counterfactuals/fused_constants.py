"""One node with something changed, and the module's weights as a fused operator keeps them: side by side, or in blocks of channels."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.counterfactuals.module_parameters import NamedArray, module_parameters
from onnxproof.diagnosis.counterfactuals.module_run import module_session
from onnxproof.diagnosis.counterfactuals.workbench import (
    Array,
    Workbench,
    attribute_value,
    set_attribute,
)
from onnxproof.runtimes.evaluator.contrib import nchwc


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """One node with other attributes, constants or inputs."""

    what: str
    """What is wrong, and what is right instead."""
    fix: str
    code: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[int, Array] = field(default_factory=dict)
    inputs: Mapping[int, str] = field(default_factory=dict)
    cast: bool = False
    """Whether a new input goes through a Cast to int32 first."""

    def apply(self, node: onnx.NodeProto) -> dict[str, Array]:
        """Change the node, and give the constants that it now reads."""
        added = {}
        for name, value in self.attributes.items():
            set_attribute(node, name, value)
        for place, array in self.constants.items():
            name = f"{node.output[0]}_mended_{place}"
            node.input[place] = name
            added[name] = array
        for place, name in self.inputs.items():
            while len(node.input) <= place:
                node.input.append("")
            node.input[place] = name
        return added


def other_constants(workbench: Workbench, node: onnx.NodeProto) -> Iterator[NodeChange]:
    """Each constant as the module's parameters of its shape; weight and bias of a packed operator also together."""
    session = module_session(workbench)
    if session is None or not hasattr(session.module, "named_parameters"):
        return
    parameters = [*module_parameters(session.module), *_joined(session.module)]
    by_place: dict[int, list[NamedArray]] = {}
    for place, name, value in workbench.constants(node):
        if value.dtype.kind != "f" or value.size < 2:
            continue
        by_place[place] = _alike(node, value, parameters)
        for label, array in by_place[place]:
            if not np.array_equal(array, value):
                yield _constant_change(name, {place: (label, array)})
    yield from _pairs_of_constants(by_place)


def _alike(
    node: onnx.NodeProto, value: Array, parameters: Sequence[NamedArray]
) -> list[NamedArray]:
    """The module's parameters of a constant's shape."""
    if node.domain == nchwc.DOMAIN:
        same = list(_in_blocks(node, value, parameters))
    else:
        same = [(label, array) for label, array in parameters if array.shape == value.shape]
    return [(label, array.astype(value.dtype)) for label, array in same]


def _pairs_of_constants(by_place: Mapping[int, list[NamedArray]]) -> Iterator[NodeChange]:
    """Weight and bias of one layer of the module at once."""
    for places in itertools.combinations(by_place, 2):
        for one, other in itertools.product(*(by_place[place] for place in places)):
            if _owner(one[0]) == _owner(other[0]):
                pair = dict(zip(places, (one, other), strict=True))
                yield _constant_change(f"inputs {places}", pair)


def _in_blocks(
    node: onnx.NodeProto, value: Array, parameters: Sequence[NamedArray]
) -> Iterator[NamedArray]:
    """The module's weights as a convolution on blocks of channels has them."""
    group = int(attribute_value(node, "group", 1))
    for label, array in parameters:
        if array.ndim == 1 and value.ndim == 1 and array.size <= value.size:
            yield label, np.pad(array, (0, value.size - array.size))
        elif array.ndim == value.ndim == 4:
            blocked = nchwc.blocked_weights(array, value.shape, group)
            if blocked is not None:
                yield label, blocked


def _owner(label: str) -> str:
    return label.partition(" ")[0].rpartition(".")[0]


def _constant_change(name: str, chosen: Mapping[int, NamedArray]) -> NodeChange:
    labels = " and ".join(f"`{label}`" for label, _ in chosen.values())
    return NodeChange(
        what=f"`{name}` should be {labels}",
        fix=f"write the module's {labels} into the constants",
        code="weights",
        constants={place: array for place, (_, array) in chosen.items()},
    )


def _joined(module: Any) -> Iterator[NamedArray]:
    """Queries, keys and values side by side: three layers of one shape under one parent, in the module's order."""
    for name, parent in module.named_modules():
        layers = [(word, child) for word, child in parent.named_children() if _is_linear(child)]
        for trio in itertools.combinations(layers, 3):
            words = "+".join(word for word, _ in trio)
            yield from _side_by_side(f"{name}.({words})", [child for _, child in trio])


def _side_by_side(name: str, layers: Sequence[Any]) -> Iterator[NamedArray]:
    """The weights of layers of one shape, and their biases where all have one."""
    if len({tuple(layer.weight.shape) for layer in layers}) > 1:
        return
    yield f"{name}.weight", np.concatenate([_numpy(layer.weight).T for layer in layers], axis=1)
    biases = [layer.bias for layer in layers if layer.bias is not None]
    if len(biases) == len(layers):
        yield f"{name}.bias", np.concatenate([_numpy(bias) for bias in biases])


def _is_linear(layer: Any) -> bool:
    weight = getattr(layer, "weight", None)
    return weight is not None and weight.dim() == 2 and hasattr(layer, "bias")


def _numpy(tensor: Any) -> Array:
    return np.asarray(tensor.detach().double().cpu().numpy())
