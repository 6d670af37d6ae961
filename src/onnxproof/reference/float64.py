"""The truth: the same module in float64, by conversion where that works and by promotion where dtypes are hard-coded."""

import copy
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from onnxproof.reference.rounding import Jitter, Promote
from onnxproof.reference.striped_convolution import Stripes
from onnxproof.reference.torch_session import TorchSession, from_numpy, to_numpy
from onnxproof.results import NoiseKind

_LARGE = 1 << 20
"""Bytes of inputs from which on a convolution may be too large for torch's way."""


class TruthSession:
    """Runs the module in float64 and says how: `kind` is DOUBLE, PROMOTED, or PERTURBED when neither works.

    The first call always watches every operation. Where none asks for a narrower dtype, later calls run the
    converted copy without the watch, which costs nothing. `written` are the parameters that a pass is known to write into.
    """

    def __init__(
        self,
        module: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        written: Collection[str] | None = None,
    ) -> None:
        self._own = TorchSession(module, args, kwargs, written)
        self.input_names = self._own.input_names
        self.output_names: Sequence[str] = []
        wide = _converted(module, args, kwargs, written)
        self.session = wide or self._own
        """The float64 copy, or the module itself where it can't be copied."""
        self._plain: bool | None = None if wide is not None else False
        self.kind = NoiseKind.DOUBLE if wide is not None else NoiseKind.PROMOTED

    @property
    def plain(self) -> bool:
        """True once a watched call has shown that the module asks for no narrower dtype."""
        return bool(self._plain)

    def run(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any] | None]:
        """The outputs in float64 (integers and booleans in their own dtype)."""
        wide = {name: from_numpy(array) for name, array in inputs.items()}
        wide = {
            name: t.to(torch.complex128 if t.is_complex() else torch.float64)
            if t.is_floating_point() or t.is_complex()
            else t
            for name, t in wide.items()
        }
        if self._plain:
            with Stripes() if sum(t.nbytes for t in wide.values()) > _LARGE else nullcontext():
                outputs = self.session.call(wide)
        else:
            with Stripes(), Promote() as watch:
                outputs = self.session.call(wide)
            if self._plain is None:
                self._plain = watch.rewrites == 0
                self.kind = NoiseKind.DOUBLE if self._plain else NoiseKind.PROMOTED
        self.output_names = [path for path, _ in outputs]
        return [to_numpy(value) for _, value in outputs]

    def close(self) -> None:
        """Let the float64 copy go."""
        self.session = self._own


def jittered(
    session: TorchSession, inputs: Mapping[str, np.ndarray[Any, Any]], seed: int, amplitude: float
) -> list[np.ndarray[Any, Any] | None]:
    """One re-run of the reference with every operation rounded anew."""
    with torch.backends.mkldnn.flags(enabled=not _has_rnn(session.module)), Jitter(seed, amplitude):
        return session.run(inputs)


def _has_rnn(module: Any) -> bool:
    """Recurrent layers run as one fused operation; taken apart, each of their gates is rounded anew."""
    return isinstance(module, torch.nn.Module) and any(
        isinstance(layer, torch.nn.RNNBase) for layer in module.modules()
    )


def in_precision(
    module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dtype: str
) -> TorchSession | None:
    """The module converted to float16 or bfloat16, or None where it can't be."""
    copied = _copy(module)
    return None if copied is None else TorchSession(copied.to(getattr(torch, dtype)), args, kwargs)


def _converted(
    module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], written: Collection[str] | None
) -> TorchSession | None:
    copied = _copy(module)
    if copied is None:
        return None
    return TorchSession(copied.double(), args, kwargs, written)


def _copy(module: Any) -> Any:
    """A deep copy, or None: some modules hold what can't be copied, and then promotion serves."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return copy.deepcopy(module) if isinstance(module, torch.nn.Module) else None
    except (RuntimeError, TypeError, NotImplementedError, AttributeError):
        return None
