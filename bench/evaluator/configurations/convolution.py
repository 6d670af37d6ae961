"""Convolutions and pools in their fused and channels-last forms."""

from typing import Any

import numpy as np

from bench.evaluator.configurations.draw import Array, Configuration, Draw, configuration


def _window(draw: Draw) -> dict[str, Any]:
    pads = [draw.size(0, 1) for _ in range(4)]
    return {
        "kernel_shape": [draw.size(1, 3), draw.size(1, 3)],
        "strides": [draw.size(1, 2), draw.size(1, 2)],
        "dilations": [draw.size(1, 2), draw.size(1, 2)],
        "pads": pads,
    }


def _activation(draw: Draw) -> dict[str, Any]:
    name = draw.one_of("", "Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid")
    if not name:
        return {}
    parameters = {"LeakyRelu": [0.2], "Clip": [-0.5, 1.5], "HardSigmoid": [0.3, 0.4]}
    attributes: dict[str, Any] = {"activation": name}
    if name in parameters:
        attributes["activation_params"] = parameters[name]
    return attributes


@configuration("FusedConv")
def fused_conv(draw: Draw) -> Configuration:
    """Every activation, groups, pads, strides, dilations, a tensor that is added."""
    group = draw.size(1, 2)
    channels, filters = group * draw.size(1, 3), group * draw.size(1, 3)
    attributes = {**_window(draw), **_activation(draw), "group": group}
    x = draw.floats(2, channels, 7, 8)
    w = draw.floats(filters, channels // group, *attributes["kernel_shape"])
    inputs: list[Array | None] = [x, w, draw.maybe(draw.floats(filters))]
    if draw.coin():
        inputs.append(draw.floats(2, filters, *_sizes((7, 8), attributes)))
    return Configuration(inputs=inputs, attributes=attributes)


def _sizes(sizes: tuple[int, int], attributes: dict[str, Any]) -> list[int]:
    """The height and width of the answer."""
    pads = attributes["pads"]
    axes = zip(
        sizes,
        attributes["kernel_shape"],
        attributes["strides"],
        attributes["dilations"],
        strict=True,
    )
    return [
        (size + pads[axis] + pads[axis + 2] - (kernel - 1) * dilation - 1) // stride + 1
        for axis, (size, kernel, stride, dilation) in enumerate(axes)
    ]


def _slow_conv(x: Array, w: Array, attributes: dict[str, Any]) -> Array:
    """Channels last, output by output, in float64."""
    pads, group = attributes["pads"], attributes["group"]
    padded = np.pad(x.astype(np.float64), [(0, 0), (pads[0], pads[2]), (pads[1], pads[3]), (0, 0)])
    height, width = _sizes(x.shape[1:3], attributes)
    (down, right), (deep, wide) = attributes["strides"], attributes["dilations"]
    out = np.zeros((len(x), height, width, len(w)))
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], (deep, wide), strict=True)]
    per_group, inputs = len(w) // group, x.shape[-1] // group
    for i in range(height):
        for j in range(width):
            top, left = i * down, j * right
            window = padded[:, top : top + reach[0] : deep, left : left + reach[1] : wide]
            for f in range(len(w)):
                first = f // per_group * inputs
                part = window[..., first : first + inputs]
                out[:, i, j, f] = np.einsum("nhwc,chw->n", part, w[f])
    return out


@configuration("NhwcConv", "NhwcFusedConv")
def nhwc_conv(draw: Draw) -> Configuration:
    """The CPU has no float kernel: by numpy, output by output."""
    group = draw.size(1, 2)
    channels, filters = group * draw.size(1, 3), group * draw.size(1, 3)
    attributes = {**_window(draw), "group": group}
    x = draw.floats(2, 6, 7, channels)
    w = draw.floats(filters, channels // group, *attributes["kernel_shape"])
    bias = draw.floats(filters)
    return Configuration(
        inputs=[x, w, bias],
        attributes=attributes,
        expected=[_slow_conv(x, w, attributes) + bias],
    )


@configuration("NhwcMaxPool")
def nhwc_max_pool(draw: Draw) -> Configuration:
    """The kernel takes bytes alone."""
    attributes = _window(draw)
    attributes["kernel_shape"] = [2, 3]
    x = draw.one_of(draw.bytes(2, 7, 8, 3), draw.signed(2, 7, 8, 3))
    return Configuration(inputs=[x], attributes=attributes)
