"""A graph as a device in half precision computes it: what a CPU hides by computing in float32.

Every result is rounded to the device's format, and overflows there. Sums inside a node (a product, a mean, a softmax) are kept in float32, as on
most devices, or in the format itself. A file with values in the format runs in its own types, so that nodes between casts to float32 stay in float32;
any other file is run as if all of its floats were in the format, except for what is computed from shapes alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from onnxproof.errors import UsageError
from onnxproof.onnxmodel import expansion
from onnxproof.runtimes.evaluator.evaluator import Evaluator, inner_evaluators
from onnxproof.runtimes.evaluator.half_sums import SUMMED_IN_HALF
from onnxproof.runtimes.evaluator.stored_weights import StoredWeight

Array = np.ndarray[Any, Any]
_FORMATS: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "tf32": None}
_SMALLEST = {"float16": 2.0**-14, "bfloat16": 2.0**-126}
"""The smallest number that is not a denormal."""
_TF32_BITS = 13
"""Bits of a float32's fraction that tf32 drops."""
_PRODUCTS = frozenset(
    {"MatMul", "Gemm", "Conv", "ConvTranspose", "FusedMatMul", "FusedGemm", "FusedConv"}
)
"""Operators whose inputs a device rounds to tf32."""
_EXACT = frozenset({"Cast", "CastLike", "Constant", "ConstantOfShape"})
"""Operators that say their output's type themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """How a device computes."""

    format: str
    flushes: bool = False
    """Denormals become 0."""
    sums_in_half: bool = False

    @classmethod
    def of(cls, option: str) -> "Device | None":
        """From `float16`, `bfloat16` or `tf32`, with `+flush` and `+half-sums` behind it; None for another word."""
        name, *choices = option.split("+")
        if name not in _FORMATS:
            return None
        unknown = set(choices) - {"flush", "half-sums"}
        if unknown or (name == "tf32" and choices):
            raise UsageError(
                "unknown-option",
                f"`reference:{option}` is not a precision of the reference evaluator",
                help="behind `float16` or `bfloat16`, `+flush` and `+half-sums` may stand",
            )
        return cls(format=name, flushes="flush" in choices, sums_in_half="half-sums" in choices)

    @property
    def dtype(self) -> Any:
        """The numpy dtype of its numbers, or None for tf32."""
        return _FORMATS[self.format]

    def round(self, x: Array) -> Array:
        """The numbers in its format; tf32 is a float32 with fewer bits."""
        if self.dtype is None:
            return _round_to_tf32(x)
        rounded = x.astype(self.dtype)
        if self.flushes:
            small = np.abs(x) < _SMALLEST[self.format]
            rounded = np.where(small, np.zeros((), self.dtype), rounded)
        return rounded


def _round_to_tf32(x: Array) -> Array:
    """The nearest float32 whose last bits are 0, ties to even; what is not finite stays."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    odd = bits >> np.uint64(_TF32_BITS) & np.uint64(1)
    half = np.uint64((1 << (_TF32_BITS - 1)) - 1)
    mask = np.uint64(0xFFFFFFFF ^ ((1 << _TF32_BITS) - 1))
    rounded = ((bits + half + odd) & mask).astype(np.uint32).view(np.float32).reshape(x.shape)
    return np.where(np.isfinite(x), rounded, x)


def evaluator_for(device: Device, model: onnx.ModelProto) -> Evaluator:
    """An evaluator that computes as the device does, in subgraphs and functions too."""
    own_types = device.dtype is not None and _has_values_in(model, device.dtype)
    kind = type(
        "EvaluatorOfDevice",
        (DeviceEvaluator,),
        {"device": device, "own_types": own_types, "shape_values": frozenset(_shapes(model))},
    )
    evaluator: Evaluator = kind(model)
    return evaluator


class DeviceEvaluator(Evaluator):
    """Rounds what nodes give; its subclasses say for which device."""

    device: Device
    own_types: bool
    shape_values: frozenset[str]

    def _init(self) -> None:
        super()._init()
        for name, value in self.rt_inits_.items():
            if isinstance(value, StoredWeight):  # rounded once, not in each run
                self.rt_inits_[name] = value.read()
        if self.own_types or self.device.dtype is None:
            return
        for name, value in self.rt_inits_.items():
            if isinstance(value, np.ndarray) and value.dtype == np.float32:
                self.rt_inits_[name] = self._as_constant(value)

    def _as_constant(self, value: Array) -> Array:
        """A constant as converters write it: beyond the range it becomes the largest number, so that a mask stays finite."""
        largest = float(ml_dtypes.finfo(self.device.dtype).max)
        bounded = np.where(np.isinf(value), value, np.clip(value, -largest, largest))
        return self.device.round(bounded).astype(np.float32)

    def run_node(self, node: Any, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
        """Inputs are widened, the node computes in float32, and its outputs are rounded."""
        if hasattr(node, "impl_") or list(inner_evaluators(node)):
            return super().run_node(node, inputs, options)
        if self.device.dtype is None:
            return self._run_in_tf32(node, inputs, options)
        rounds = self._rounds(node, self._first_float(inputs))
        outputs = self._compute(node, [self._widen(value) for value in inputs], options, rounds)
        if node.op_type == "Constant" and not self.own_types:
            return tuple(self._rounded_constant(value) for value in outputs)
        if rounds:
            return tuple(self._rounded(value) for value in outputs)
        return outputs

    def _compute(
        self, node: Any, wide: Sequence[Any], options: dict[str, Any], rounds: bool
    ) -> Any:
        compute = SUMMED_IN_HALF.get(node.op_type)
        if compute is not None and self.device.sums_in_half and rounds:
            return compute(node, self.device.dtype, *wide)
        return super().run_node(node, wide, options)

    def _run_in_tf32(self, node: Any, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
        if node.op_type in _PRODUCTS:
            inputs = [_tf32_input(self.device, value) for value in inputs]
        return super().run_node(node, inputs, options)

    def _first_float(self, inputs: Sequence[Any]) -> Any:
        """The dtype of the first float among the inputs, which is that of the answer, or None."""
        for value in inputs:
            if isinstance(value, np.ndarray) and _is_float(value.dtype):
                return value.dtype
        return None

    def _rounds(self, node: Any, kept: Any) -> bool:
        if self.own_types:
            return kept == self.device.dtype and node.op_type not in _EXACT
        return not self.shape_values.intersection(node.output)

    def _widen(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype == self.device.dtype:
            return value.astype(np.float32)
        return value

    def _rounded_constant(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype == np.float32:
            return self._as_constant(value)
        return value

    def _rounded(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray | np.generic) or value.dtype not in (
            np.float32,
            self.device.dtype,
        ):
            return value
        rounded = self.device.round(np.asarray(value))
        if self.own_types:
            return rounded
        return rounded.astype(np.float32)


def _tf32_input(device: Device, value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype == np.float32:
        return device.round(value)
    return value


def _is_float(dtype: Any) -> bool:
    return bool(dtype.kind == "f" or dtype == ml_dtypes.bfloat16)


def _has_values_in(model: onnx.ModelProto, dtype: Any) -> bool:
    """Whether a weight, a port or a cast of the file is of this type."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ports = (*model.graph.input, *model.graph.output)
    if any(port.type.tensor_type.elem_type == kind for port in ports):
        return True
    if any(tensor.data_type == kind for tensor in model.graph.initializer):
        return True
    return any(
        attribute.i == kind
        for node in expansion.walk(model.graph.node)
        for attribute in node.attribute
        if node.op_type == "Cast" and attribute.name == "to"
    )


def _shapes(model: onnx.ModelProto) -> Iterator[str]:
    """Values that are computed from shapes and constants alone: no device keeps those in half precision."""
    constants = {tensor.name for tensor in model.graph.initializer}
    shapes: set[str] = set()
    for node in model.graph.node:
        names = [name for name in node.input if name]
        if node.op_type == "Constant":
            constants.update(node.output)
        elif node.op_type in ("Shape", "Size") or (
            shapes.intersection(names) and all(n in shapes or n in constants for n in names)
        ):
            shapes.update(node.output)
    yield from shapes
