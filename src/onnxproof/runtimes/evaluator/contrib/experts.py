"""Mixtures of experts: each token goes through the few networks that its router chose."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator import attributes as attribute_reader
from onnxproof.runtimes.evaluator.activations import gelu, sigmoid
from onnxproof.runtimes.evaluator.contrib.activations import silu
from onnxproof.runtimes.evaluator.contrib.blocks import dequantize_rows, unpack
from onnxproof.runtimes.evaluator.contrib.operator import Contrib, refuse_inputs
from onnxproof.runtimes.evaluator.normalization import softmax
from onnxproof.runtimes.evaluator.precision import widen

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExpertAttributes:
    """The attributes of MoE and QMoE, under their names."""

    k: int = 1
    activation_type: str = "relu"
    normalize_routing_weights: int = 0
    use_sparse_mixer: int = 0
    swiglu_fusion: int = 0
    swiglu_limit: float | None = None
    activation_alpha: float = 1.0
    activation_beta: float = 0.0
    expert_weight_bits: int = 4
    block_size: int = 0
    quant_type: str = "int"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """One linear layer of every expert: expert, output, input."""

    weights: Array
    bias: Array | None

    def apply(self, expert: int, rows: Array) -> Array:
        """The rows through the layer of one expert."""
        y: Array = rows @ self.weights[expert].T
        if self.bias is not None:
            y = y + self.bias[expert]
        return y


class MoE(Contrib):
    """Experts in floats."""

    def _run(
        self,
        x: Array,
        router: Array,
        weights_1: Array,
        bias_1: Array | None,
        weights_2: Array,
        bias_2: Array | None = None,
        weights_3: Array | None = None,
        bias_3: Array | None = None,
        **attributes: Any,
    ) -> tuple[Array]:
        options = attribute_reader.read(_ExpertAttributes, attributes)
        refuse_inputs("MoE", {"a third layer": weights_3, "a third bias": bias_3})
        layers = [
            _Layer(weights=widen(weights_1), bias=bias_1),
            _Layer(weights=widen(weights_2), bias=bias_2),
        ]
        return (_mix(x, router, None, layers, options),)


@dataclass(frozen=True, slots=True)
class _QuantizedInputs:
    """The inputs of QMoE, in its order, as far as integers need them."""

    x: Array
    router: Array
    weights_1: Array
    scales_1: Array
    bias_1: Array | None
    weights_2: Array
    scales_2: Array
    bias_2: Array | None = None
    weights_3: Array | None = None
    scales_3: Array | None = None
    bias_3: Array | None = None
    zeros_1: Array | None = None
    zeros_2: Array | None = None
    zeros_3: Array | None = None
    router_weights: Array | None = None


class QMoE(Contrib):
    """Experts in integers of a few bits, with a scale for each row or for each block of a row."""

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[Array]:
        options = attribute_reader.read(_ExpertAttributes, attributes)
        if options.quant_type != "int" or len(inputs) > 15:
            raise NotImplementedError("QMoE with other weights than integers")
        operands = _QuantizedInputs(*inputs)
        refuse_inputs("QMoE", {"a third layer": operands.weights_3})
        bits, block = options.expert_weight_bits, options.block_size
        first = _dequantize(operands.weights_1, operands.scales_1, operands.zeros_1, bits, block)
        second = _dequantize(operands.weights_2, operands.scales_2, operands.zeros_2, bits, block)
        layers = [
            _Layer(weights=first, bias=operands.bias_1),
            _Layer(weights=second, bias=operands.bias_2),
        ]
        return (_mix(operands.x, operands.router, operands.router_weights, layers, options),)


def _dequantize(
    packed: Array,
    scales: Array,
    zeros: Array | None,
    bits: int,
    block: int,
) -> Array:
    columns = packed.shape[-1] * 8 // bits
    if not block and zeros is not None:  # one zero point a row, packed along the rows
        zeros = unpack(zeros, bits)[:, : packed.shape[1]].astype(np.float64)
    return dequantize_rows(
        packed, scales, zeros, columns=columns, bits=bits, block=block or columns
    )


def _mix(
    x: Array,
    router: Array,
    router_weights: Array | None,
    layers: Sequence[_Layer],
    options: _ExpertAttributes,
) -> Array:
    """Every token through its experts, weighted.

    1. The largest scores choose the experts; of equal ones the first.
    2. Their weights: the softmax over all experts, or over the chosen ones where weights are normalized.
    3. The sum of the experts' answers by weight.
    """
    if options.use_sparse_mixer:
        raise NotImplementedError("experts with a sparse mixer")
    tokens = widen(x).reshape(-1, x.shape[-1])
    scores = widen(router)
    chosen = np.argsort(-scores, axis=-1, kind="stable")[:, : options.k]  # 1
    shares = _shares(scores, router_weights, chosen, options)  # 2
    total = np.zeros((len(tokens), layers[1].weights.shape[1]), np.result_type(tokens, np.float32))
    for expert in range(scores.shape[1]):  # 3
        rows, places = np.nonzero(chosen == expert)
        if rows.size:
            inner = _activation(options)(layers[0].apply(expert, tokens[rows]))
            answer = layers[1].apply(expert, inner)
            np.add.at(total, rows, answer * shares[rows, places][:, None])
    return np.asarray(total.reshape(*x.shape[:-1], -1).astype(x.dtype))


def _shares(
    scores: Array,
    router_weights: Array | None,
    chosen: Array,
    options: _ExpertAttributes,
) -> Array:
    if router_weights is not None:
        shares = np.take_along_axis(widen(router_weights), chosen, axis=-1)
        if options.normalize_routing_weights:
            shares = shares / shares.sum(axis=-1, keepdims=True)
        return shares
    shares = np.take_along_axis(softmax(scores, -1), chosen, axis=-1)
    if options.normalize_routing_weights:
        shares = shares / shares.sum(axis=-1, keepdims=True)
    return np.asarray(shares)


def _activation(options: _ExpertAttributes) -> Callable[[Array], Array]:
    kinds: dict[str, Callable[[Array], Array]] = {
        "relu": lambda y: np.maximum(y, 0),
        "gelu": lambda y: gelu(y, approximate=True),
        "silu": silu,
        "identity": lambda y: y,
        "swiglu": lambda y: _swiglu(y, options),
    }
    return kinds[options.activation_type]


def _swiglu(y: Array, options: _ExpertAttributes) -> Array:
    """A gate and a linear part, side by side or as neighbours: gate * sigmoid(alpha gate) * (linear + beta)."""
    if options.swiglu_fusion == 1:
        gate, linear = y[:, 0::2], y[:, 1::2]
    elif options.swiglu_fusion == 2:
        gate, linear = np.split(y, 2, axis=-1)
    else:
        raise NotImplementedError("swiglu with weights of its own for the linear part")
    if options.swiglu_limit is not None:
        gate = np.minimum(gate, options.swiglu_limit)
        linear = np.clip(linear, -options.swiglu_limit, options.swiglu_limit)
    opened = gate * sigmoid(options.activation_alpha * gate)
    return np.asarray(opened * (linear + options.activation_beta))


OPERATORS: dict[str, type[OpRun]] = {"MoE": MoE, "QMoE": QMoE}
