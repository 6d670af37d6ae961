"""The truth: the same module in float64, by conversion where that works and by promotion where dtypes are hard-coded."""

import copy
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onnxproof.reference import lazy_float64
from onnxproof.reference.lazy_float64 import WrittenWeight
from onnxproof.reference.rounding import Jitter, Promote
from onnxproof.reference.striped_convolution import Stripes
from onnxproof.reference.torch_session import TorchSession, from_numpy, to_numpy
from onnxproof.results import NoiseKind

Array = np.ndarray[Any, Any]
_NOT_COPIED = (RuntimeError, TypeError, NotImplementedError, AttributeError)
"""What a deep copy raises for a module that holds an open file, a lock, a lambda."""
_LARGE = 1 << 20
"""Bytes of inputs from which on a convolution may be too large for torch's float64 kernel. Not measured."""


class TruthSession:
    """Runs the module in float64 and says how: `kind` is DOUBLE, PROMOTED, or PERTURBED when neither works.

    The first call always rewrites every operation that asks for a narrower dtype. Where none does, later calls run the
    converted copy directly, which costs nothing. `written` are the parameters that a pass is known to write into.
    """

    def __init__(
        self,
        module: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        written: Collection[str] | None = None,
    ) -> None:
        self._own = TorchSession(module, args, kwargs, written)
        self._example = (tuple(args), dict(kwargs))
        self.input_names = self._own.input_names
        self.output_names: Sequence[str] = []
        self._plain: bool | None = None
        """Whether the module asks for no narrower dtype; None until the first call has shown it."""
        self.session = self._own
        """The float64 copy, or the module itself where it can't be copied."""
        self.kind = NoiseKind.DOUBLE
        self.lazy = _is_lazy(module, written)
        """Whether weights are widened when they are read."""
        wide = _copy_in_float64(module, lazy=self.lazy)
        if wide is None:
            self._plain = False
            self.kind = NoiseKind.PROMOTED
        else:
            self.session = TorchSession(wide, args, kwargs, written)

    @property
    def plain(self) -> bool:
        """True once a promoted call has shown that the module asks for no narrower dtype."""
        return bool(self._plain)

    def run(self, inputs: Mapping[str, Array]) -> list[Array | None]:
        """The outputs in float64 (integers and booleans in their own dtype)."""
        tensors = {name: _widen(from_numpy(array)) for name, array in inputs.items()}
        try:
            outputs = self._run(tensors)
        except WrittenWeight:
            self._convert_for_good()
            outputs = self._run(tensors)
        self.output_names = [path for path, _ in outputs]
        return [to_numpy(value) for _, value in outputs]

    def _run(self, tensors: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
        if self._plain:
            return self._run_converted(tensors)
        return self._run_promoted(tensors)

    def _convert_for_good(self) -> None:
        """A copy of every weight, for a module that writes into its own."""
        wide = _copy_in_float64(self._own.module, lazy=False)
        assert wide is not None
        args, kwargs = self._example
        self.session = TorchSession(wide, args, kwargs)

    def _run_converted(self, tensors: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
        large = sum(tensor.nbytes for tensor in tensors.values()) > _LARGE
        with Stripes() if large else nullcontext():
            return self.session.call(tensors)

    def _run_promoted(self, tensors: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
        with Stripes(), Promote() as promotion:
            outputs = self.session.call(tensors)
        if self._plain is None:
            self._plain = promotion.rewrites == 0
            if not self._plain:
                self.kind = NoiseKind.PROMOTED
        return outputs

    def close(self) -> None:
        """Let the float64 copy go."""
        self.session = self._own


def _widen(tensor: Tensor) -> Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    if tensor.is_floating_point():
        return tensor.to(torch.float64)
    return tensor


def run_with_jitter(
    session: TorchSession,
    inputs: Mapping[str, Array],
    jitter: Jitter,
) -> list[Array | None]:
    """One re-run of the reference with every operation rounded anew."""
    with torch.backends.mkldnn.flags(enabled=not _has_rnn(session.module)), jitter:
        return session.run(inputs)


def _has_rnn(module: Any) -> bool:
    """Whether there are recurrent layers: fused by mkldnn they are one operation; without it each gate is rounded anew."""
    return isinstance(module, torch.nn.Module) and any(
        isinstance(layer, torch.nn.RNNBase) for layer in module.modules()
    )


def open_in_precision(
    module: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dtype: str,
) -> TorchSession | None:
    """The module converted to float16 or bfloat16, or None where it can't be."""
    copied = _copy(module)
    if copied is None:
        return None
    return TorchSession(copied.to(getattr(torch, dtype)), args, kwargs)


def _is_lazy(module: Any, written: Collection[str] | None) -> bool:
    """Whether a float64 copy of all weights would be large."""
    if written or not lazy_float64.can_be_widened_piece_by_piece(module):
        return False
    wide_bytes: int = sum(8 * parameter.numel() for parameter in module.parameters())
    return wide_bytes > lazy_float64.AT_ONCE


def _copy_in_float64(module: Any, *, lazy: bool) -> Any:
    """The module in float64, or None: some modules hold what can't be copied, and then promotion serves."""
    if not lazy_float64.can_be_widened_piece_by_piece(module):
        copied = _copy(module)
        return copied if copied is None else copied.double()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return lazy_float64.copy_in_float64(module, lazy=lazy)
    except _NOT_COPIED:
        return None


def _copy(module: Any) -> Any:
    """A deep copy, or None: some modules hold what can't be copied, and then promotion serves."""
    if not isinstance(module, torch.nn.Module):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return copy.deepcopy(module)
    except _NOT_COPIED:
        return None
