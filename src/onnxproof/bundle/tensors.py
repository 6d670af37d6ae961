"""Arrays as safetensors and back; what the format lacks (complex numbers, bfloat16, float8) is stored as plain numbers of the same bits."""

from collections.abc import Mapping
from typing import Any

import ml_dtypes  # noqa: F401 - its dtypes are known to numpy by name from here on
import numpy as np

from onnxproof.bundle.manifest import damaged

Array = np.ndarray[Any, Any]
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_PLAIN = ("bool", *_INTEGERS, "float16", "float32", "float64")
_ODD = ("complex64", "complex128", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def save(tensors: Mapping[str, Array]) -> tuple[bytes, dict[str, str]]:
    """The file's bytes, and the dtypes of what is stored as another."""
    from safetensors.numpy import save as save_plain

    stored = {}
    odd = {}
    for name, array in tensors.items():
        stored[name] = _as_plain(np.asarray(array, order="C"))
        if str(array.dtype) not in _PLAIN:
            odd[name] = str(array.dtype)
    return save_plain(stored), odd


def load(content: bytes, odd: Mapping[str, str], where: str) -> dict[str, Array]:
    """The arrays behind `save`; the format's own reader checks every size against the bytes that are there."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as load_plain

    try:
        stored = load_plain(content)
        return {name: _from_plain(array, odd.get(name, "")) for name, array in stored.items()}
    except (SafetensorError, ValueError, TypeError, KeyError, OverflowError, MemoryError) as why:
        raise damaged(f"its tensors can't be read: {why!s:.200}", where) from why


def _as_plain(array: Array) -> Array:
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag], axis=-1)
    if str(array.dtype) in _PLAIN:
        return array
    return array.view(f"u{array.dtype.itemsize}")


def _from_plain(array: Array, dtype: str) -> Array:
    if not dtype:
        return array
    if dtype not in _ODD:
        raise ValueError(f"`{dtype}` is no known dtype")
    if dtype.startswith("complex"):
        return np.ascontiguousarray(array).view(dtype)[..., 0]
    return array.view(np.dtype(dtype))
