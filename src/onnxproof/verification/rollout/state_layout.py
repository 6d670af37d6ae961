"""How a file keeps its states: as the reference does, or in a layout of its own."""

import math
from typing import Any

import numpy as np

from onnxproof.onnxmodel.onnx_file import Port
from onnxproof.results import InputInfo

Array = np.ndarray[Any, Any]
_MOST_ELEMENTS = 1 << 28
"""Elements of a state that is made up: 1 GB in float32. Not measured otherwise."""


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


def in_own_layout(own: Array, port: Port | None, batch: int, rows: str | None = None) -> Array:
    """An empty or zero state as the file takes it: its fixed dims, the rows, no length yet in the others.

    `rows` is what the file calls the dim of rows; without it, or in a state that has no such dim, it is the first open one.
    A file may declare more than any machine holds: such a state stays the reference's own, and the runtime refuses it.
    """
    if port is None or port.dims is None:
        return own
    place = _place_of_rows(port.dims, rows)
    if _is_laid_out_alike(own, port.dims, batch, place):
        return own
    shape = []
    for axis, dim in enumerate(port.dims):
        if isinstance(dim, int):
            shape.append(dim)
        else:
            shape.append(batch if axis == place else 0)
    if math.prod(shape) > _MOST_ELEMENTS:
        return own
    return np.zeros(shape, own.dtype)


def _place_of_rows(dims: tuple[str | int | None, ...], rows: str | None) -> int | None:
    if rows is not None and rows in dims:
        return dims.index(rows)
    return next((axis for axis, dim in enumerate(dims) if not isinstance(dim, int)), None)


def _is_laid_out_alike(
    own: Array, dims: tuple[str | int | None, ...], batch: int, rows: int | None
) -> bool:
    """Whether the reference's own state fits: the same rank and fixed sizes, and as many places as rows where the file has them."""
    if len(dims) != own.ndim:
        return False
    if rows is not None and own.shape[rows] != batch:
        return False
    pairs = zip(dims, own.shape, strict=True)
    return all(not isinstance(dim, int) or dim == size for dim, size in pairs)
