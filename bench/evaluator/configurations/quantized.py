"""Operators that compute with 8-bit integers."""

from typing import Any

import numpy as np

from bench.evaluator.configurations.draw import Array, Configuration, Draw, configuration


def _zero(draw: Draw) -> Array:
    return np.array(draw.size(90, 160), np.uint8)


def _signed_zero(draw: Draw) -> Array:
    return np.array(draw.size(-20, 20), np.int8)


@configuration("QuantizeLinear")
def quantize(draw: Draw) -> Configuration:
    """Floats to bytes."""
    return Configuration(inputs=[draw.floats(3, draw.size(1, 9)), draw.scales(), _zero(draw)])


@configuration("DequantizeLinear")
def dequantize(draw: Draw) -> Configuration:
    """Bytes to floats."""
    return Configuration(inputs=[draw.bytes(3, draw.size(1, 9)), draw.scales(), _zero(draw)])


def _right_side(draw: Draw, inner: int, columns: int) -> list[Array | None]:
    """Weights with one scale and zero point, or one for each column."""
    b = draw.signed(inner, columns)
    if draw.coin():
        return [b, draw.scales(columns), draw.integers(-9, 9, columns).astype(np.int8)]
    return [b, draw.scales(), draw.maybe(_signed_zero(draw))]


@configuration("DynamicQuantizeMatMul")
def dynamic_matmul(draw: Draw) -> Configuration:
    """With and without zero points and a bias."""
    inner, columns = draw.size(2, 20), draw.size(1, 9)
    right = _right_side(draw, inner, columns)
    inputs = [draw.floats(2, draw.size(1, 4), inner), *right, draw.maybe(draw.floats(columns))]
    return Configuration(inputs=inputs, rounds=True)


@configuration("MatMulIntegerToFloat")
def matmul_to_float(draw: Draw) -> Configuration:
    """With and without zero points and a bias."""
    inner, columns = draw.size(2, 20), draw.size(1, 9)
    b, scale, zero = _right_side(draw, inner, columns)
    bias = draw.maybe(draw.floats(columns))
    a = draw.bytes(draw.size(1, 4), inner)
    return Configuration(inputs=[a, b, draw.scales(), scale, _zero(draw), zero, bias])


@configuration("QGemm")
def gemm(draw: Draw) -> Configuration:
    """To bytes and to floats, either side transposed."""
    rows, inner, columns = draw.size(1, 6), draw.size(2, 20), draw.size(1, 6)
    flips = {"transA": int(draw.coin()), "transB": int(draw.coin())}
    a = draw.bytes(inner, rows) if flips["transA"] else draw.bytes(rows, inner)
    b = draw.signed(columns, inner) if flips["transB"] else draw.signed(inner, columns)
    c = draw.maybe(draw.integers(-900, 900, columns).astype(np.int32))
    inputs: list[Array | None] = [a, draw.scales(), _zero(draw), b, draw.scales()]
    inputs += [_signed_zero(draw), c]
    if draw.coin():
        inputs += [draw.scales(size=0.4), _zero(draw)]
    return Configuration(inputs=inputs, attributes={**flips, "alpha": 1.0})


@configuration("QLinearAdd", "QLinearMul")
def binary(draw: Draw) -> Configuration:
    """The right side may be one row for all."""
    width = draw.size(1, 20)
    b = draw.one_of(draw.bytes(3, width), draw.bytes(width))
    inputs = [draw.bytes(3, width), draw.scales(), _zero(draw), b, draw.scales(), _zero(draw)]
    return Configuration(inputs=[*inputs, draw.scales(size=0.05), _zero(draw)])


def _to_one(draw: Draw) -> list[Array | None]:
    """Answers between 0 and 1."""
    inputs = [draw.bytes(3, 4, draw.size(2, 9)), draw.scales(), _zero(draw)]
    return [*inputs, np.array(1 / 256, np.float32), np.array(0, np.uint8)]


@configuration("QLinearSigmoid")
def sigmoid(draw: Draw) -> Configuration:
    """One scale for all answers."""
    return Configuration(inputs=_to_one(draw))


@configuration("QLinearSoftmax")
def softmax(draw: Draw) -> Configuration:
    """Along one axis, or along all from one on."""
    attributes = {"axis": draw.one_of(1, 2), "opset": draw.one_of(11, 13)}
    return Configuration(inputs=_to_one(draw), attributes=attributes)


@configuration("QLinearLeakyRelu")
def leaky(draw: Draw) -> Configuration:
    """Several slopes."""
    inputs = [draw.bytes(3, draw.size(2, 9)), draw.scales(), _zero(draw)]
    inputs += [draw.scales(), _zero(draw)]
    return Configuration(inputs=inputs, attributes={"alpha": draw.one_of(0.01, 0.2, 0.9)})


@configuration("QLinearGlobalAveragePool")
def global_pool(draw: Draw) -> Configuration:
    """Channels first and last."""
    return Configuration(
        inputs=[draw.bytes(2, 4, 5, 6), draw.scales(), _zero(draw), draw.scales(), _zero(draw)],
        attributes={"channels_last": int(draw.coin())},
    )


@configuration("QLinearAveragePool")
def pool(draw: Draw) -> Configuration:
    """Channels first and last, with and without what is padded."""
    last = int(draw.coin())
    x = draw.bytes(2, 6, 7, 3) if last else draw.bytes(2, 3, 6, 7)
    attributes = {
        "channels_last": last,
        "kernel_shape": [draw.size(2, 3), draw.size(2, 3)],
        "strides": [draw.size(1, 2), draw.size(1, 2)],
        "pads": [draw.size(0, 1) for _ in range(4)],
        "count_include_pad": int(draw.coin()),
    }
    scales = [draw.scales(), _zero(draw), draw.scales(), _zero(draw)]
    return Configuration(inputs=[x, *scales], attributes=attributes)


@configuration("QLinearConcat")
def concat(draw: Draw) -> Configuration:
    """Two or three parts of other scales."""
    inputs: list[Array | None] = [draw.scales(size=0.03), _zero(draw)]
    for _ in range(draw.size(2, 3)):
        inputs += [draw.bytes(2, draw.size(1, 5)), draw.scales(), _zero(draw)]
    return Configuration(inputs=inputs, attributes={"axis": 1})


@configuration("QLinearConv")
def conv(draw: Draw) -> Configuration:
    """Channels first and last, one scale or one for each filter."""
    last, filters = int(draw.coin()), draw.size(1, 5)
    x = draw.bytes(1, 6, 7, 4) if last else draw.bytes(1, 4, 6, 7)
    scale = draw.one_of(draw.scales(), draw.scales(filters))
    zero = np.zeros(np.shape(scale), np.int8)
    attributes: dict[str, Any] = {"channels_last": last, "pads": [1, 1, 0, 1]}
    inputs = [x, draw.scales(), _zero(draw), draw.signed(filters, 4, 3, 3), scale, zero]
    return Configuration(
        inputs=[*inputs, draw.scales(size=0.6), _zero(draw)], attributes=attributes
    )


@configuration("QLinearWhere")
def where(draw: Draw) -> Configuration:
    """Two tensors of other scales."""
    shape = (3, draw.size(1, 9))
    condition = draw.integers(0, 2, *shape).astype(bool)
    x, y = draw.bytes(*shape), draw.bytes(*shape)
    inputs = [condition, x, draw.scales(), _zero(draw), y, draw.scales(), _zero(draw)]
    return Configuration(inputs=[*inputs, draw.scales(), _zero(draw)])
