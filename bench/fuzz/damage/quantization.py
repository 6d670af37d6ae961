"""Scales, zero points and axes of Q/DQ pairs that can't be."""

import numpy as np
from onnx import helper, numpy_helper

from bench.fuzz.damage import NotApplicable, Target, kind


def _replace(target: Target, place: int, value: np.ndarray) -> None:  # type: ignore[type-arg]
    """Put another constant in the place of a Q/DQ node's scale (1) or zero point (2)."""
    nodes = [
        node
        for node in target.graph.node
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and len(node.input) > place
    ]
    node = target.one(nodes)
    weight = next(
        (weight for weight in target.graph.initializer if weight.name == node.input[place]), None
    )
    if weight is None:
        raise NotApplicable
    weight.CopyFrom(numpy_helper.from_array(value, weight.name))


@kind("scale-odd")
def scale_odd(target: Target) -> None:
    """A scale of 0, NaN, infinity, below 0, or of another type."""
    value = target.random.choice(
        [
            np.float32(0),
            np.float32(np.nan),
            np.float32(np.inf),
            np.float32(-0.1),
            np.float64(0.1),
            np.zeros(0, np.float32),
            np.ones((2, 2), np.float32),
        ]
    )
    _replace(target, 1, np.asarray(value))


@kind("zero-point-odd")
def zero_point_odd(target: Target) -> None:
    """A zero point of another type or of another size."""
    _replace(
        target,
        2,
        target.random.choice(
            [
                np.array(3, np.uint8),
                np.array(3, np.int32),
                np.array(3.0, np.float32),
                np.zeros(3, np.int8),
                np.zeros(0, np.int8),
                np.array(-100, np.int8),
            ]
        ),
    )


@kind("quantized-axis-odd")
def quantized_axis_odd(target: Target) -> None:
    """An axis that is not there, on a Q/DQ node."""
    node = target.one(
        [
            node
            for node in target.graph.node
            if node.op_type in ("QuantizeLinear", "DequantizeLinear")
        ]
    )
    del node.attribute[:]
    node.attribute.append(helper.make_attribute("axis", target.random.choice([0, 5, -7, 10**9])))
    if target.random.random() < 0.3:
        node.attribute.append(
            helper.make_attribute("block_size", target.random.choice([-1, 3, 10**9]))
        )
