"""Products, activations, and weights of a few bits."""

import math
from typing import Any

import numpy as np

from bench.evaluator.configurations.draw import Array, Configuration, Draw, configuration


@configuration("FusedMatMul")
def fused_matmul(draw: Draw) -> Configuration:
    """Batches, transpositions of either side, and a batch axis in the middle."""
    batch, rows, columns, inner = (draw.size(1, 5) for _ in range(4))
    flips = {"transA": int(draw.coin()), "transB": int(draw.coin())}
    a = draw.floats(batch, *_flip((rows, inner), flips["transA"]))
    b = draw.floats(batch, *_flip((inner, columns), flips["transB"]))
    attributes: dict[str, Any] = {**flips, "alpha": float(draw.floats())}
    if draw.coin():
        attributes["transBatchA"] = 1
        a = np.ascontiguousarray(np.moveaxis(a, 0, 1))
        attributes["transBatchB"] = 1
        b = np.ascontiguousarray(np.moveaxis(b, 0, 1))
    return Configuration(inputs=[a, b], attributes=attributes)


@configuration("TransposeMatMul")
def transpose_matmul(draw: Draw) -> Configuration:
    """The older name."""
    rows, columns, inner = (draw.size(1, 6) for _ in range(3))
    flips = {"transA": int(draw.coin()), "transB": int(draw.coin())}
    a = draw.floats(3, *_flip((rows, inner), flips["transA"]))
    b = draw.floats(*_flip((inner, columns), flips["transB"]))
    return Configuration(inputs=[a, b], attributes={**flips, "alpha": 0.7})


def _flip(shape: tuple[int, int], turned: int) -> tuple[int, int]:
    if turned:
        return shape[1], shape[0]
    return shape


@configuration("FusedGemm")
def fused_gemm(draw: Draw) -> Configuration:
    """Every activation, with and without a bias."""
    rows, columns, inner = (draw.size(1, 8) for _ in range(3))
    flips = {"transA": int(draw.coin()), "transB": int(draw.coin())}
    name = draw.one_of("Relu", "Sigmoid", "Tanh", "LeakyRelu")
    attributes: dict[str, Any] = {**flips, "alpha": 0.7, "beta": 1.3, "activation": name}
    if name == "LeakyRelu":
        attributes["activation_alpha"] = float(draw.scales(size=0.2))
    a = draw.floats(*_flip((rows, inner), flips["transA"]))
    b = draw.floats(*_flip((inner, columns), flips["transB"]))
    return Configuration(inputs=[a, b, draw.maybe(draw.floats(columns))], attributes=attributes)


@configuration("Gelu", "QuickGelu")
def gelu(draw: Draw) -> Configuration:
    """Values of several sizes."""
    return Configuration(inputs=[draw.floats(draw.size(1, 5), 9) * draw.size(1, 6)])


@configuration("BiasGelu", "FastGelu")
def bias_gelu(draw: Draw) -> Configuration:
    """With a bias."""
    width = draw.size(2, 40)
    return Configuration(inputs=[draw.floats(3, draw.size(1, 4), width) * 3, draw.floats(width)])


def _erf(x: Array) -> Array:
    return np.array([math.erf(value) for value in x.reshape(-1)]).reshape(x.shape)


def _exact_gelu(x: Array) -> Array:
    return x * (1 + _erf(x / math.sqrt(2))) / 2


def _tanh_gelu(x: Array) -> Array:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@configuration("GemmFastGelu")
def gemm_fast_gelu(draw: Draw) -> Configuration:
    """The CPU has no kernel: by numpy."""
    inner, columns = draw.size(1, 7), draw.size(1, 7)
    x, w, bias = draw.floats(2, 3, inner), draw.floats(inner, columns), draw.floats(columns)
    total = np.einsum("abk,kn->abn", x, w, dtype=np.float64) + bias
    return Configuration(inputs=[x, w, bias], expected=[_tanh_gelu(total)])


@configuration("BiasSplitGelu")
def bias_split_gelu(draw: Draw) -> Configuration:
    """The CPU has no kernel: by numpy."""
    half = draw.size(1, 9)
    x, bias = draw.floats(2, 3, 2 * half), draw.floats(2 * half)
    total = x.astype(np.float64) + bias
    wanted = total[..., :half] * _exact_gelu(total[..., half:])
    return Configuration(inputs=[x, bias], expected=[wanted])


@configuration("BiasAdd")
def bias_add(draw: Draw) -> Configuration:
    """The CPU has no kernel: by numpy."""
    width = draw.size(1, 9)
    x, bias, skip = draw.floats(2, 3, width), draw.floats(width), draw.floats(2, 3, width)
    return Configuration(
        inputs=[x, bias, skip], expected=[np.sum([x, skip], axis=0, dtype=np.float64) + bias]
    )


@configuration("BiasSoftmax")
def bias_softmax(draw: Draw) -> Configuration:
    """The CPU has no kernel: by numpy, with the bias repeated along the axes that it lacks."""
    batch, heads, length = draw.size(1, 3), draw.size(1, 3), draw.size(1, 6)
    x = draw.floats(batch, heads, length, length)
    inner = draw.coin()
    bias = draw.floats(batch, length) if inner else draw.floats(length, length)
    if inner:
        spread = np.repeat(bias[:, None, None, :], heads, axis=1)
    else:
        spread = np.broadcast_to(bias, x.shape)
    powers = np.exp(x.astype(np.float64) + spread)
    return Configuration(
        inputs=[x, bias],
        attributes={"axis": 3, "is_inner_broadcast": int(inner)},
        expected=[powers / powers.sum(axis=-1, keepdims=True)],
    )


@configuration("MatMulNBits")
def matmul_bits(draw: Draw) -> Configuration:
    """2, 4 and 8 bits, every block size, zero points packed and as floats, g_idx."""
    bits, block = draw.one_of(2, 4, 8), draw.one_of(16, 32, 64, 128)
    columns, rows = draw.size(1, 6) * 24, draw.size(1, 17)
    blocks = -(-columns // block)
    zeros, groups = None, None
    kind = draw.one_of("none", "packed", "floats", "groups")
    if kind == "packed":
        zeros = draw.bytes(rows * -(-blocks * bits // 8))
    if kind == "floats" and bits == 4:  # the kernel has no others
        zeros = draw.integers(0, 2**bits, rows, blocks).astype(np.float32)
    if kind == "groups" and bits == 4:  # without zero points, which the kernel ignores beside g_idx
        groups = draw.rng.permutation(np.arange(blocks * block) // block).astype(np.int32)
        groups = groups[:columns]
    a = draw.floats(draw.size(1, 4), columns)
    packed = draw.bytes(rows, blocks, block * bits // 8)
    inputs = [a, packed, draw.scales(rows * blocks), zeros, groups]
    if draw.coin() and groups is None:
        inputs.append(draw.floats(rows))
    attributes = {"K": columns, "N": rows, "bits": bits, "block_size": block}
    return Configuration(inputs=inputs, attributes=attributes)


@configuration("MatMulBnb4")
def matmul_bnb4(draw: Draw) -> Configuration:
    """Both kinds of 4-bit floats."""
    block, rows, columns = draw.one_of(16, 32, 64), draw.size(1, 9), draw.size(1, 5) * 16
    count = rows * columns
    return Configuration(
        inputs=[
            draw.floats(draw.size(1, 4), columns),
            draw.bytes(-(-count // 2)),
            draw.scales(-(-count // block), size=1.0),
        ],
        attributes={
            "K": columns,
            "N": rows,
            "block_size": block,
            "quant_type": draw.one_of(0, 1),
        },
    )


@configuration("GatherBlockQuantized")
def gather_blocks(draw: Draw) -> Configuration:
    """Tables in bytes, of 4 and 8 bits."""
    bits, block = draw.one_of(4, 8), draw.one_of(16, 32)
    rows, columns = draw.size(2, 9), draw.size(1, 4) * block
    blocks = columns // block
    zeros = draw.maybe(draw.bytes(rows, -(-blocks * bits // 8)))
    return Configuration(
        inputs=[
            draw.bytes(rows, columns * bits // 8),
            draw.integers(0, rows, 2, draw.size(1, 4)),
            draw.scales(rows, blocks),
            zeros,
        ],
        attributes={"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": 1},
    )
