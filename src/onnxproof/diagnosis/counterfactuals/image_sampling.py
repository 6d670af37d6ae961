"""Another part of an image, or another way of resizing it, in the graph itself."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx

from onnxproof.diagnosis.counterfactuals.workbench import (
    Array,
    Tried,
    Workbench,
    node_name,
    node_with_output,
    set_attribute,
)

_PARTS = (("the centre", 0.5), ("the top left", 0.0), ("the bottom right", 1.0))
"""Where an image may be cut, and the share of what is cut off that lies before it."""
_RESIZES: dict[str, dict[str, str | float]] = {
    "bilinear": {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
    "bilinear with antialiasing": {
        "mode": "linear",
        "coordinate_transformation_mode": "half_pixel",
        "antialias": 1,
        "exclude_outside": 1,
    },
    "bilinear with aligned corners": {
        "mode": "linear",
        "coordinate_transformation_mode": "align_corners",
    },
    "nearest": {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    },
    "nearest to the middle of each pixel": {
        "mode": "nearest",
        "coordinate_transformation_mode": "half_pixel",
        "nearest_mode": "round_prefer_ceil",
    },
    "bicubic": {
        "mode": "cubic",
        "coordinate_transformation_mode": "half_pixel",
        "cubic_coeff_a": -0.75,
    },
    "bicubic with antialiasing": {
        "mode": "cubic",
        "coordinate_transformation_mode": "half_pixel",
        "cubic_coeff_a": -0.5,
        "antialias": 1,
        "exclude_outside": 1,
    },
    "bicubic with aligned corners": {
        "mode": "cubic",
        "coordinate_transformation_mode": "align_corners",
        "cubic_coeff_a": -0.75,
    },
}
_RESIZE_ATTRIBUTES = (
    "mode",
    "coordinate_transformation_mode",
    "nearest_mode",
    "cubic_coeff_a",
    "antialias",
    "exclude_outside",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Crop:
    """A slice with constant ends and a step of one."""

    node: onnx.NodeProto
    starts: Array
    sizes: Array
    """Along each axis that is cut."""
    whole: Array
    """The sizes of what is cut."""


def try_crops(workbench: Workbench, input_name: str, slices: list[onnx.NodeProto]) -> Tried | None:
    """Another part of the image: the same size, taken from elsewhere."""
    crops = [crop for node in slices if (crop := _crop_of(workbench, node)) is not None]
    if not crops:
        return None
    names = ", ".join(node_name(crop.node) for crop in crops)
    verb = "cuts" if len(crops) == 1 else "cut"
    for where, share in _PARTS:
        for round_up in (False, True):
            change = partial(_move_crops, crops=crops, share=share, round_up=round_up)
            tried = workbench.try_model(
                workbench.with_graph(change),
                evidence=f"{names} {verb} another part out of `{input_name}`; from {where} the answers are right",
                fix=f"cut the image from {where} in {names}",
            )
            if tried is not None:
                return tried
    return None


def _crop_of(workbench: Workbench, node: onnx.NodeProto) -> _Crop | None:
    constants = {place: value for place, _, value in workbench.constants(node)}
    if not {1, 2, 3} <= set(constants):
        return None
    if 4 in constants and (constants[4] != 1).any():
        return None
    whole = workbench.value(node.input[0])
    part = workbench.value(node.output[0])
    if whole is None or part is None:
        return None
    axes = constants[3].reshape(-1)
    sizes = np.array([part.shape[axis] for axis in axes])
    whole_sizes = np.array([whole.shape[axis] for axis in axes])
    if not (sizes < whole_sizes).any():
        return None
    return _Crop(node=node, starts=constants[1], sizes=sizes, whole=whole_sizes)


def _move_crops(
    graph: onnx.GraphProto, *, crops: list[_Crop], share: float, round_up: bool
) -> None:
    for crop in crops:
        node = node_with_output(graph, crop.node.output[0])
        round_off = np.ceil if round_up else np.floor
        begin = round_off((crop.whole - crop.sizes) * share)
        for place, values in ((1, begin), (2, begin + crop.sizes)):
            node.input[place] = f"{node.output[0]}_crop_{place}"
            array = values.astype(crop.starts.dtype).reshape(crop.starts.shape)
            graph.initializer.append(onnx.numpy_helper.from_array(array, node.input[place]))


def try_resizes(workbench: Workbench, resizes: list[onnx.NodeProto]) -> Tried | None:
    """Another way of resizing, all of its attributes at once: as a library has it."""
    for node in resizes[:1]:
        where = node_name(node)
        for name, attributes in _RESIZES.items():
            tried = workbench.try_model(
                workbench.with_node(node, partial(_set_resize, attributes=attributes)),
                code="attribute",
                evidence=f"when {where} (Resize) resizes {name} ({attributes}), the answers are right",
                fix=f"let {where} resize {name}",
            )
            if tried is not None:
                return tried
    return None


def _set_resize(node: onnx.NodeProto, *, attributes: dict[str, str | float]) -> None:
    for name in _RESIZE_ATTRIBUTES:
        set_attribute(node, name, attributes.get(name))
