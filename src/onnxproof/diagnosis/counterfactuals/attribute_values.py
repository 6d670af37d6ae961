"""Other values that an attribute of a node, or an argument of a call, may have: the file's, the module's, and other conventions'."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import onnx

from onnxproof.diagnosis.counterfactuals.module_numbers import file_numbers
from onnxproof.diagnosis.counterfactuals.workbench import Workbench, attribute_value

_ARGUMENT_WORDS = {
    "approximate": ("none", "tanh"),
    "reduce": ("sum", "prod", "mean", "amax", "amin"),
    "rounding_mode": ("floor", "trunc"),
}
_NUMBER_ARGUMENTS = (
    "eps",
    "scale",
    "negative_slope",
    "alpha",
    "beta",
    "correction",
    "threshold",
    "p",
    "ord",
    "other",
    "value",
)
"""Arguments that are fractions, even where the call has an integer or nothing."""
_AXES = range(-4, 4)
_EPSILONS = (1e-5, 1e-6, 1e-12)
_FLOATS = {
    "epsilon": (1e-5, 1e-6, 1e-12, 1e-3, 1e-8, 1e-7, 1e-4, 1e-2),
    "alpha": (1.0, 0.01, 0.1, 0.2, 1 / 6, 0.3, 1.6732632423543772, 0.5, 1.702),
    "beta": (1.0, 0.5, 0.0),
    "gamma": (1.0507009873554805,),
    "cubic_coeff_a": (-0.75, -0.5),
    "extrapolation_value": (0.0,),
    "momentum": (0.9,),
    "scale": (1.0,),
    "bias": (0.0,),
    "lambd": (0.5,),
}
_STRINGS = {
    "approximate": ("none", "tanh"),
    "mode": (
        "constant",
        "reflect",
        "edge",
        "wrap",
        "nearest",
        "linear",
        "cubic",
        "bilinear",
        "bicubic",
        "DCR",
        "CRD",
    ),
    "coordinate_transformation_mode": (
        "half_pixel",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "half_pixel_symmetric",
    ),
    "nearest_mode": ("floor", "round_prefer_floor", "round_prefer_ceil", "ceil"),
    "padding_mode": ("zeros", "border", "reflection"),
    "reduction": ("none", "add", "mul", "max", "min"),
    "direction": ("forward", "reverse", "LEFT", "RIGHT"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
}
_FLAGS = (
    "count_include_pad",
    "exclusive",
    "reverse",
    "linear_before_reset",
    "transA",
    "transB",
    "largest",
    "sorted",
    "select_last_index",
    "align_corners",
    "ceil_mode",
    "fmod",
    "upper",
    "training_mode",
    "exclude_outside",
    "antialias",
    "input_forget",
    "noop_with_empty_axes",
    "keepdims",
    "storage_order",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherValue:
    """An attribute of a node with another value than it has."""

    name: str
    present: Any
    """What the node has, or the standard's default."""
    other: Any


def other_arguments(workbench: Workbench, name: str, value: Any) -> list[Any]:
    """Values that an argument of a call may have in the file instead."""
    if isinstance(value, bool):
        return [not value]
    if name in _ARGUMENT_WORDS:
        return list(_ARGUMENT_WORDS[name])
    if name in ("dim", "axis") and isinstance(value, int):
        return list(_AXES)
    numbers, lists = file_numbers(workbench)
    if _is_fraction(name, value):
        return _other_fractions(name, value, numbers)
    if isinstance(value, list):
        return _other_lists(name, value, lists)
    if isinstance(value, int):
        return _other_integers(name, value, numbers)
    return []


def _is_fraction(name: str, value: Any) -> bool:
    if isinstance(value, float):
        return True
    return name in _NUMBER_ARGUMENTS and (value is None or isinstance(value, int))


def _other_fractions(name: str, value: Any, numbers: list[float]) -> list[Any]:
    others = list(numbers)
    if name == "eps":
        others += _EPSILONS
    others += [0.0, 1.0, 2.0]
    if isinstance(value, float):
        others.append(0.5)
    return others


def _other_lists(name: str, value: list[Any], lists: list[list[int]]) -> list[Any]:
    if not value or not all(isinstance(v, int) for v in value):
        return []
    size = len(value)
    same_size = [other for other in lists if len(other) == size]
    others = [*same_size, [1] * size, [0] * size, value[::-1]]
    if name == "shifts":  # of a roll
        others.append([-v for v in value])
    return others


def _other_integers(name: str, value: int, numbers: list[float]) -> list[Any]:
    whole: list[Any] = [int(number) for number in numbers if number == int(number)]
    others = [*whole, 0, 1, -value, value - 1, value + 1]
    if name == "divisor_override":
        others.append(None)
    return others


def other_attributes(workbench: Workbench, node: onnx.NodeProto) -> Iterator[OtherValue]:
    """Other values for the attributes that the operator's schema knows."""
    try:
        version = max(
            opset.version
            for opset in workbench.model.opset_import
            if opset.domain in ("", "ai.onnx")
        )
        schema = onnx.defs.get_schema(node.op_type, version, "")
    except (onnx.defs.SchemaError, ValueError):
        return
    module_floats = _module_floats(workbench, node)
    for name, described in schema.attributes.items():
        present = attribute_value(node, name)
        if present is None:
            present = _default(described)
        for other in _other_values(name, present, module_floats):
            if not _is_same(present, other):
                yield OtherValue(name=name, present=present, other=other)


def _module_floats(workbench: Workbench, node: onnx.NodeProto) -> list[float]:
    """The fractions that the module's own call was given."""
    entry = workbench.counterpart(node)
    if entry is None:
        return []
    return [value for value in entry.arguments.values() if isinstance(value, float)]


def _default(described: onnx.defs.OpSchema.Attribute) -> Any:
    if not described.default_value.type:
        return None
    return onnx.helper.get_attribute_value(described.default_value)


def _is_same(present: Any, other: Any) -> bool:
    if isinstance(present, bytes):
        return bool(present == other) or present.decode() == other
    return bool(present == other)


def _other_values(name: str, present: Any, module_floats: list[float]) -> list[Any]:
    if name in ("clip", "activations"):
        return [None]  # a recurrent cell without it
    if name in _STRINGS:
        return list(_STRINGS[name])
    if name in _FLAGS:
        return [0, 1]
    if name == "axis":
        return list(_AXES)
    if name in _FLOATS:
        return [*module_floats, *_FLOATS[name]]
    if name in ("pads", "dilations", "strides") and isinstance(present, list | tuple):
        return _other_windows(name, list(present))
    return []


def _other_windows(name: str, present: list[int]) -> list[list[int]]:
    """Pads, dilations or strides: begins and ends (or axes) exchanged, and the same for all."""
    size = len(present)
    if size < 2:
        return []
    if name == "pads":
        half = size // 2
        exchanged = [*present[half:], *present[:half]]
        numbers = [max(present), 1, min(present), sum(present) // size]
    else:
        exchanged = present[::-1]
        numbers = [max(present), 1, min(present), 2, 3, 4]
    return [exchanged, *([number] * size for number in numbers)]
