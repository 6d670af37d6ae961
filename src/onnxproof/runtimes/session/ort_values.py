"""Values of ONNX Runtime as arrays, and back: what numpy has not goes by its bits, and what is no tensor by its parts."""

from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime

from onnxproof.numerics import port_values

Array = np.ndarray[Any, Any]
BY_BITS = {
    "bfloat16": (16, np.uint16),
    "float8_e4m3fn": (17, np.uint8),
    "float8_e4m3fnuz": (18, np.uint8),
    "float8_e5m2": (19, np.uint8),
    "float8_e5m2fnuz": (20, np.uint8),
}
"""Dtypes that numpy and onnxruntime don't share: the standard's number of each, and the integers that hold its bits."""
_FLOAT8 = {
    "tensor(float8e4m3fn)": ml_dtypes.float8_e4m3fn,
    "tensor(float8e4m3fnuz)": ml_dtypes.float8_e4m3fnuz,
    "tensor(float8e5m2)": ml_dtypes.float8_e5m2,
    "tensor(float8e5m2fnuz)": ml_dtypes.float8_e5m2fnuz,
}


def to_value(array: Array) -> onnxruntime.OrtValue:
    """An array as the runtime takes it."""
    if array.dtype.name not in BY_BITS:
        return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
    number, bits = BY_BITS[array.dtype.name]
    held = np.ascontiguousarray(array).view(bits)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(held, number)


def as_arrays(value: Any, kind: str) -> Any:
    """An array, or for a port that is no tensor its arrays in a list or a map; None where the model leaves it out."""
    if isinstance(value, np.ndarray) and kind in _FLOAT8 and value.dtype == np.uint8:
        return value.view(_FLOAT8[kind])
    if value is None or isinstance(value, np.ndarray):
        return value
    if kind.startswith("tensor") or not kind:
        return np.asarray(value)
    if "map(" not in kind:
        return value
    rows = value if isinstance(value, list) else [value]
    dtype = np.float32 if "tensor(float)" in kind else None
    return port_values.columns(rows, dtype)


def from_value(value: onnxruntime.OrtValue) -> Array:
    """A value of the runtime as an array; floats of 8 bits as the integers that hold them."""
    if not any(word in value.data_type() for word in ("bfloat16", "float8")):
        return np.asarray(value.numpy())
    import torch  # dlpack is the one way out of an OrtValue for what numpy has not

    tensor = torch.utils.dlpack.from_dlpack(value._ortvalue.to_dlpack())
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.view(torch.uint8).numpy()
