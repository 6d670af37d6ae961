"""ONNX Runtime's operators on blocks of channels (`com.microsoft.nchwc`), which its offline optimisation writes for one kind of processor.

A tensor of such a file keeps its channels in blocks of 8 or 16 and has room for whole blocks. Here every value stays in the order of the standard, with as many
channels as the file has: only weights come in blocks, and are put back in order. So an inner value can be compared with the module's.
"""

import functools
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator import pooling
from onnxproof.runtimes.evaluator.contrib.convolution import FusedConv
from onnxproof.runtimes.evaluator.contrib.operator import Contrib
from onnxproof.runtimes.evaluator.precision import widen
from onnxproof.system import temporary

Array = np.ndarray[Any, Any]
DOMAIN = "com.microsoft.nchwc"
_CHANNELS = 24
"""Three blocks of 8: ONNX Runtime pads them to 32 where its blocks have 16."""


@functools.cache
def block_size() -> int:
    """The channels in a block on this processor: a convolution of 24 channels is optimised, and its weights tell."""
    import onnxruntime

    info = helper.make_tensor_value_info
    weight = numpy_helper.from_array(np.ones((_CHANNELS, 3, 1, 1), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "probe",
        [info("x", TensorProto.FLOAT, [1, 3, 4, 4])],
        [info("y", TensorProto.FLOAT, [1, _CHANNELS, 4, 4])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with temporary.Folder() as folder:
        path = folder / "probe.onnx"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        written = onnx.load(path)
    sizes = [tensor.dims[0] for tensor in written.graph.initializer if len(tensor.dims) == 4]
    return 8 if sizes == [_CHANNELS] else 16


def plain_weights(w: Array, group: int) -> Array:
    """Weights in the order of the standard. Both sides are in blocks, unless the input has fewer channels than a block or each its own filter."""
    block = block_size()
    filters, channels, *kernel = w.shape
    if filters % block:
        raise NotImplementedError(f"weights of {filters} filters in blocks of {block}")
    if not _both_in_blocks(channels, group, block):
        parts = w.reshape(filters // block, channels, *kernel, block)
        return np.moveaxis(parts, -1, 1).reshape(w.shape)
    parts = w.reshape(filters // block, channels // block, *kernel, block, block)
    return np.asarray(np.moveaxis(parts, (-1, -2), (1, 3)).reshape(w.shape))


def blocked_weights(w: Array, shape: tuple[int, ...], group: int) -> Array | None:
    """The other way round, with room for whole blocks; None where they do not fit into this shape."""
    block = block_size()
    if len(shape) != w.ndim or any(own > room for own, room in zip(w.shape, shape, strict=True)):
        return None
    if w.shape[2:] != shape[2:]:
        return None
    room = np.zeros(shape, w.dtype)
    room[: w.shape[0], : w.shape[1]] = w
    filters, channels, *kernel = shape
    if not _both_in_blocks(channels, group, block):
        parts = room.reshape(filters // block, block, channels, *kernel)
        return np.moveaxis(parts, 1, -1).reshape(shape)
    parts = room.reshape(filters // block, block, channels // block, block, *kernel)
    return np.asarray(np.moveaxis(parts, (1, 3), (-1, -2)).reshape(shape))


def _both_in_blocks(channels: int, group: int, block: int) -> bool:
    depthwise = group > 1 and channels == 1
    return channels % block == 0 and not depthwise


class BlockedConv(FusedConv):
    """FusedConv with its weights in blocks."""

    op_domain = DOMAIN

    def _run(self, x: Array, w: Array, *others: Any, **attributes: Any) -> tuple[Array]:
        group = int(attributes.get("group") or 1)
        weights = plain_weights(w, group)
        needed = weights.shape[1] * group
        return super()._run(widen(x)[:, :needed].astype(x.dtype), weights, *others, **attributes)


class ReorderInput(Contrib):
    """From the order of the standard into blocks: here only room for whole blocks, and channels from last to second."""

    op_domain = DOMAIN

    def _run(self, x: Array, channels_last: int = 0, **_: Any) -> tuple[Array]:
        if channels_last:
            x = np.moveaxis(x, -1, 1)
        missing = -x.shape[1] % block_size()
        widths = [(0, 0), (0, missing), *[(0, 0)] * (x.ndim - 2)]
        return (np.pad(x, widths),)


class ReorderOutput(Contrib):
    """Back again, without the room."""

    op_domain = DOMAIN

    def _run(self, x: Array, channels: int = 0, channels_last: int = 0, **_: Any) -> tuple[Array]:
        y = x[:, :channels]
        if channels_last:
            y = np.moveaxis(y, 1, -1)
        return (y,)


class MaxPool(pooling.MaxPool):
    """As in the standard."""

    op_schema = None
    op_domain = DOMAIN


class AveragePool(pooling.AveragePool):
    """As in the standard."""

    op_schema = None
    op_domain = DOMAIN


class GlobalAveragePool(Contrib):
    """The mean of each channel."""

    op_domain = DOMAIN

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        axes = tuple(range(2, x.ndim))
        return (widen(x).mean(axis=axes, keepdims=True).astype(x.dtype),)


class GlobalMaxPool(Contrib):
    """The largest of each channel."""

    op_domain = DOMAIN

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class Upsample(Contrib):
    """Each place repeated; other modes were not compared."""

    op_domain = DOMAIN

    def _run(
        self, x: Array, scales: Any = (1, 1, 1, 1), mode: str = "nearest", **_: Any
    ) -> tuple[Array]:
        if mode != "nearest":
            raise NotImplementedError(f"Upsample of blocks with mode `{mode}`")
        y = x
        for axis, scale in enumerate(scales):
            y = np.repeat(y, int(scale), axis=axis)
        return (y,)


OPERATORS: dict[str, type[OpRun]] = {
    "AveragePool": AveragePool,
    "Conv": BlockedConv,
    "GlobalAveragePool": GlobalAveragePool,
    "GlobalMaxPool": GlobalMaxPool,
    "MaxPool": MaxPool,
    "ReorderInput": ReorderInput,
    "ReorderOutput": ReorderOutput,
    "Upsample": Upsample,
}
