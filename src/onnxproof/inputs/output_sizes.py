"""Inputs whose values set a size (a window's length, the scales of a Resize, the end of a Range): the size is computed before it is tried.

A generator that writes 10,000 or 2**40 into such an input asks both models for a tensor of that size, or for a loop of that many turns.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxproof.inputs.space import Array, Inputs
from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.results import Case, Signature

_SIZE_INPUTS: Mapping[str, tuple[int, ...]] = {
    "Range": (0, 1, 2),
    "Expand": (1,),
    "Tile": (1,),
    "ConstantOfShape": (0,),
    "Resize": (2, 3),
    "Upsample": (1,),
    "Pad": (1,),
    "Reshape": (1,),
    "OneHot": (1,),
    "Loop": (0,),
    "HannWindow": (0,),
    "HammingWindow": (0,),
    "BlackmanWindow": (0,),
    "MelWeightMatrix": (0, 1),
    "DFT": (1,),
    "CenterCropPad": (1,),
    "AffineGrid": (1,),
}
"""Operators, and which of their inputs set the size of what they compute."""
_PASSES = frozenset(
    {
        "Cast",
        "Identity",
        "Unsqueeze",
        "Squeeze",
        "Reshape",
        "Flatten",
        "Concat",
        "Gather",
        "Slice",
        "Split",
        "Expand",
        "Where",
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Pow",
        "Neg",
        "Abs",
        "Floor",
        "Ceil",
        "Round",
        "Clip",
        "Max",
        "Min",
        "ReduceMax",
        "ReduceMin",
        "ReduceSum",
        "ReduceProd",
    }
)
"""Operators that sizes are computed with."""
_FEW = 64
"""Elements of an input up to which it may be one of sizes: a larger one is data, though its maximum may set one (not measured)."""
_SHAPE = 8
"""Elements up to which all of them together are taken for a shape, whose product counts (not measured)."""
_MOST = 1 << 26
"""Elements that a tried size may lead to: a quarter of a gigabyte in float32, and a second for most operators."""


class Sizing:
    """How many elements the values of an input would lead to."""

    def __init__(
        self,
        file: OnnxFile,
        signature: Signature,
        example: Inputs,
    ) -> None:
        decide = size_inputs(file)
        self._example = {}
        for info in signature.inputs:
            array = example[info.name]
            if info.onnx_name in decide and array.size <= _FEW:
                self._example[info.name] = _extent(array)
        self._output_elements = sum(math.prod(output.shape) for output in signature.outputs)

    @property
    def names(self) -> frozenset[str]:
        """The inputs whose values set sizes."""
        return frozenset(self._example)

    def refusal(self, case: Case) -> str:
        """Why a case is not to be tried; empty when it may be, as the user's own data always may."""
        if case.group == "data":
            return ""
        input_elements = sum(array.size for array in case.inputs.values())
        base = max(self._output_elements, input_elements, 1)
        for name, usual in self._example.items():
            elements = base * _extent(case.inputs[name]) / usual
            if elements > max(_MOST, base):
                return f"`{name}` sets a size, and would lead to about {elements:.1g} elements"
        return ""


def size_inputs(file: OnnxFile) -> frozenset[str]:
    """The inputs whose values reach a place where they are a size."""
    # the inputs that each value comes from
    sources: dict[str, set[str]] = {port.name: {port.name} for port in file.inputs}
    size_inputs: set[str] = set()
    for node in file.model.graph.node:  # the graph is sorted: one pass follows every value
        for place in _SIZE_INPUTS.get(node.op_type, ()):
            if place < len(node.input):
                size_inputs |= sources.get(node.input[place], set())
        if node.op_type in _PASSES:
            passed = {source for name in node.input for source in sources.get(name, ())}
            sources.update(dict.fromkeys(node.output, passed))
    return frozenset(size_inputs)


def _extent(array: Array) -> float:
    """How much an input asks for: the product of a shape, or the largest of many numbers; what is no number asks for nothing."""
    if array.dtype.kind not in "iufb":
        return 1.0
    with np.errstate(all="ignore"):
        wide = np.abs(array.astype(np.float64))
        sizes: Any = np.nan_to_num(wide, nan=1.0, posinf=np.inf).clip(1.0)
        if array.size <= _SHAPE:
            return float(sizes.prod())
        return float(sizes.max(initial=1.0))
