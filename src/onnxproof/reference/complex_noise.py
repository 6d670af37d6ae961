"""What the rounding of complex numbers and of Fourier transforms is relative to.

A product of complex numbers is rounded relative to its absolute value: its real part may be far smaller. A transform is rounded relative
to the typical size of all its results, and grows with the logarithm of its length (Gentleman and Sande, 1966). torch may be
nearly exact on a single impulse, where ONNX Runtime's DFT is off by a few roundings of 1 (20 times torch's error, measured at 6 values).
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

TRANSFORMS = frozenset({"_fft_r2c", "_fft_c2c", "_fft_c2r"})


def complex_scale(name: str, arguments: Mapping[str, Any], wide: Any) -> Tensor | None:
    """The scale as a tensor that broadcasts to the result; None for real operations that are no transform."""
    if not isinstance(wide, Tensor):
        return None
    if name in TRANSFORMS:
        return _transform_scale(arguments, wide)
    if wide.is_complex():
        return wide.abs()
    return None


def _transform_scale(arguments: Mapping[str, Any], wide: Tensor) -> Tensor:
    """The root mean square of the result along the transformed dims, times the logarithm of their length."""
    dims = list(arguments["dim"])
    if not dims or not wide.numel():
        return torch.zeros(())
    length = math.prod(wide.shape[dim] for dim in dims)
    power = wide.abs().square().mean(dims, keepdim=True)
    return power.sqrt() * max(1.0, math.log2(length))
