"""Large weights of a graph that is evaluated: kept narrow, or left in their file, and widened when a node reads them."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.external_data_helper import ExternalDataInfo

Array = np.ndarray[Any, Any]
SMALL = 1 << 18
"""Bytes of a weight that is held as its evaluator uses it. Not measured."""
_WHOLE_BYTES = frozenset({1, 2, 4, 8})
"""Sizes of elements that can be read from a file as they are; two numbers of 4 bits share a byte."""


class StoredWeight:
    """A weight that is read anew by each node that uses it."""

    def __init__(self, stored: Array, *, wide: bool) -> None:
        self._stored = stored
        self._wide = wide

    @classmethod
    def in_file(cls, tensor: onnx.TensorProto) -> "StoredWeight":
        """One whose data stays in its file, mapped."""
        info = ExternalDataInfo(tensor)
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
        shape = tuple(tensor.dims)
        mapped = np.memmap(info.location, dtype, "r", offset=info.offset or 0, shape=shape)
        return cls(mapped, wide=False)

    def widened(self) -> "StoredWeight":
        """The same, read in float64."""
        return StoredWeight(self._stored, wide=True)

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the stored numbers."""
        dtype: np.dtype[Any] = self._stored.dtype
        return dtype

    def read(self) -> Array:
        """The numbers as a node takes them."""
        stored = self._stored
        if isinstance(stored, np.memmap):  # what is read through the map would stay in this process
            numbers = np.fromfile(
                str(stored.filename), stored.dtype, stored.size, offset=stored.offset
            )
            stored = numbers.reshape(stored.shape)
        if self._wide:
            return stored.astype(np.float64)
        return np.asarray(stored)

    def take_rows(self, node: Any, indices: Any, options: dict[str, Any]) -> tuple[Any, ...]:
        """A Gather of it: what is picked is widened, not the table."""
        picked = node.run(self._stored, indices, **options)
        if not self._wide:
            return tuple(np.array(value) for value in picked)
        return tuple(value.astype(np.float64) for value in picked)


def is_large(tensor: onnx.TensorProto, folder: Path) -> bool:
    """Whether an external weight may stay in its file: large, of whole bytes, and in a file of its folder."""
    location = next((e.value for e in tensor.external_data if e.key == "location"), "")
    path = folder / location
    if not location or path.is_symlink() or not path.is_file():
        return False
    try:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    except KeyError:
        return False
    packed = tensor.data_type in _PACKED
    whole = dtype.itemsize in _WHOLE_BYTES and not packed
    return whole and dtype.itemsize * int(np.prod(tensor.dims)) > SMALL


_PACKED = frozenset(
    getattr(onnx.TensorProto, name)
    for name in ("INT4", "UINT4", "FLOAT4E2M1", "INT2", "UINT2", "STRING")
    if hasattr(onnx.TensorProto, name)
)
