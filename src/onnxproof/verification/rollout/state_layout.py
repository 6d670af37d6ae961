"""How a file keeps its states: as the reference does, or in a layout of its own."""

from typing import Any

import numpy as np

from onnxproof.onnxmodel.onnx_file import Port
from onnxproof.results import InputInfo

Array = np.ndarray[Any, Any]


def shares_layout(info: InputInfo, port: Port | None) -> bool:
    """Whether the file takes a state as the reference gives it."""
    return port is not None and port.dtype == info.dtype and _fits(info, port)


def _fits(info: InputInfo, port: Port) -> bool:
    if port.dims is None:
        return True
    if len(port.dims) != len(info.shape):
        return False
    pairs = zip(info.dims, info.shape, port.dims, strict=True)
    return all(
        not isinstance(dim, int) or dim == size or isinstance(own, str) for own, size, dim in pairs
    )


def is_eight_bits(info: InputInfo, port: Port | None) -> bool:
    """Whether the file keeps in 8 bits what is a float in the reference."""
    if port is None or not info.dtype.startswith("float"):
        return False
    return port.dtype in ("int8", "uint8") or port.dtype.startswith("float8")


def in_own_layout(own: Array, port: Port | None, batch: int) -> Array:
    """An empty or zero state as the file takes it: its fixed dims, the first open one for the rows, no length yet in the others."""
    if port is None or port.dims is None:
        return own
    fixed = [
        not isinstance(dim, int) or dim == size
        for dim, size in zip(port.dims, own.shape, strict=False)
    ]
    if len(port.dims) == own.ndim and all(fixed):
        return own
    shape = []
    rows = False
    for dim in port.dims:
        if isinstance(dim, int):
            shape.append(dim)
        else:
            shape.append(0 if rows else batch)
            rows = True
    return np.zeros(shape, own.dtype)
