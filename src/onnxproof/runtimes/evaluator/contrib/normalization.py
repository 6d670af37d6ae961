"""Normalizations with a residual, an embedding or an activation inside."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator.activations import sigmoid
from onnxproof.runtimes.evaluator.contrib.activations import silu
from onnxproof.runtimes.evaluator.contrib.operator import Contrib, add_bias
from onnxproof.runtimes.evaluator.normalization import normalize
from onnxproof.runtimes.evaluator.precision import widen

Array = np.ndarray[Any, Any]


class SkipLayerNormalization(Contrib):
    """LayerNormalization of a sum, which is an output too."""

    def _run(
        self,
        x: Array,
        skip: Array,
        gamma: Array,
        beta: Array | None = None,
        bias: Array | None = None,
        epsilon: float = 1e-12,
        **_: Any,
    ) -> tuple[Array, ...]:
        total = add_bias(widen(x) + skip, bias)
        y, mean, inverse = normalize(total, (x.ndim - 1,), epsilon)
        y = add_bias(y * gamma, beta)
        outputs = (y.astype(x.dtype), mean, inverse, total.astype(x.dtype))
        return outputs[: len(self.onnx_node.output)]


class SkipSimplifiedLayerNormalization(Contrib):
    """A sum over its root mean square; the sum is an output too."""

    def _run(
        self,
        x: Array,
        skip: Array,
        gamma: Array,
        bias: Array | None = None,
        epsilon: float = 1e-12,
        **_: Any,
    ) -> tuple[Array, ...]:
        total = add_bias(widen(x) + skip, bias)
        y, inverse = divide_by_rms(total, (x.ndim - 1,), epsilon)
        mean = np.zeros_like(inverse)  # the kernel leaves this output alone
        outputs = ((y * gamma).astype(x.dtype), mean, inverse, total.astype(x.dtype))
        return outputs[: len(self.onnx_node.output)]


class SimplifiedLayerNormalization(Contrib):
    """Values over their root mean square. ONNX Runtime keeps it in the standard's own domain."""

    def _run(
        self,
        x: Array,
        scale: Array,
        axis: int = -1,
        epsilon: float = 1e-5,
        **_: Any,
    ) -> tuple[Array, ...]:
        axes = tuple(range(axis % x.ndim, x.ndim))
        y, inverse = divide_by_rms(widen(x), axes, epsilon)
        outputs = ((y * scale).astype(x.dtype), inverse)
        return outputs[: len(self.onnx_node.output)]


def divide_by_rms(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array]:
    """The values over the root of their mean square, and the inverse of that root."""
    inverse = 1.0 / np.sqrt(np.square(x).mean(axis=axes, keepdims=True) + epsilon)
    return x * inverse, inverse


@dataclass(frozen=True, slots=True)
class _EmbedInputs:
    """The inputs of EmbedLayerNormalization, in its order."""

    ids: Array
    segment_ids: Array | None
    words: Array
    positions: Array
    segments: Array | None
    gamma: Array
    beta: Array
    mask: Array | None = None
    position_ids: Array | None = None

    def total(self) -> Array:
        """The sum of the embeddings."""
        places = self.position_ids
        if places is None:
            places = np.arange(self.ids.shape[1])[None]
        total = widen(self.words[self.ids]) + self.positions[places]
        if self.segments is not None and self.segment_ids is not None:
            total = total + self.segments[self.segment_ids]
        return total

    def lengths(self) -> Array:
        """How many places the mask shows in each row; zeros without one."""
        if self.mask is None:
            return np.zeros(len(self.ids), np.int32)
        return np.asarray((self.mask != 0).sum(axis=1).astype(np.int32))


class EmbedLayerNormalization(Contrib):
    """LayerNormalization of the sum of word, position and segment embeddings; the mask only gives lengths."""

    def _run(self, *inputs: Any, epsilon: float = 1e-12, **_: Any) -> tuple[Array, ...]:
        operands = _EmbedInputs(*inputs)
        total = operands.total()
        y = normalize(total, (2,), epsilon)[0] * operands.gamma + operands.beta
        dtype = operands.words.dtype
        outputs = (y.astype(dtype), operands.lengths(), total.astype(dtype))
        return outputs[: len(self.onnx_node.output)]


class GroupNorm(Contrib):
    """Group normalization, channels last by default, with SiLU behind it where `activation` is 1."""

    def _run(
        self,
        x: Array,
        gamma: Array,
        beta: Array,
        activation: int = 0,
        groups: int = 1,
        channels_last: int = 1,
        epsilon: float = 1e-5,
        **_: Any,
    ) -> tuple[Array, ...]:
        y = _normalize_groups(
            widen(x), gamma, beta, groups=groups, channels_last=channels_last, epsilon=epsilon
        )
        if activation:
            y = silu(y)
        return (y.astype(x.dtype),)


class SkipGroupNorm(GroupNorm):
    """The same of a sum, which is an output too; the residual may be one for each channel of an image."""

    def _run(  # type: ignore[override]
        self,
        x: Array,
        gamma: Array,
        beta: Array,
        skip: Array,
        bias: Array | None = None,
        channels_last: int = 1,
        **attributes: Any,
    ) -> tuple[Array, ...]:
        shape = (1,) * (x.ndim - 2)
        if skip.ndim == 2 and channels_last:
            skip = skip.reshape(len(skip), *shape, -1)
        elif skip.ndim == 2:
            skip = skip.reshape(*skip.shape, *shape)
        if bias is not None and not channels_last:
            bias = bias.reshape(-1, *shape)
        total = add_bias(widen(x) + skip, bias)
        (y,) = super()._run(total, gamma, beta, channels_last=channels_last, **attributes)
        outputs = (y.astype(x.dtype), total.astype(x.dtype))
        return outputs[: len(self.onnx_node.output)]


def _normalize_groups(
    x: Array,
    gamma: Array,
    beta: Array,
    *,
    groups: int,
    channels_last: int,
    epsilon: float,
) -> Array:
    first = np.moveaxis(x, -1, 1) if channels_last else x
    grouped = first.reshape(first.shape[0], groups, -1)
    y = normalize(grouped, (2,), epsilon)[0].reshape(first.shape)
    by_channel = (-1, *(1,) * (x.ndim - 2))
    y = y * gamma.reshape(by_channel) + beta.reshape(by_channel)
    if channels_last:
        return np.moveaxis(y, 1, -1)
    return y


class GatedRMSNorm(Contrib):
    """Groups of as many values as the scale has, over their root mean square, times an activated gate."""

    def _run(
        self,
        x: Array,
        scale: Array,
        gate: Array,
        activation: str = "silu",
        epsilon: float = 1e-6,
        **_: Any,
    ) -> tuple[Array]:
        grouped = widen(x).reshape(*x.shape[:-1], -1, scale.size)
        y = (divide_by_rms(grouped, (grouped.ndim - 1,), epsilon)[0] * scale).reshape(x.shape)
        opened = silu(widen(gate))
        if activation == "sigmoid":
            opened = sigmoid(widen(gate))
        return ((y * opened).astype(x.dtype),)


OPERATORS: dict[str, type[OpRun]] = {
    "EmbedLayerNormalization": EmbedLayerNormalization,
    "GatedRMSNorm": GatedRMSNorm,
    "GroupNorm": GroupNorm,
    "SimplifiedLayerNormalization": SimplifiedLayerNormalization,
    "SkipGroupNorm": SkipGroupNorm,
    "SkipLayerNormalization": SkipLayerNormalization,
    "SkipSimplifiedLayerNormalization": SkipSimplifiedLayerNormalization,
}
