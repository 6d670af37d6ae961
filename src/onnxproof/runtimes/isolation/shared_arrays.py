"""Arrays in a shared file: both sides map it, so that nothing is pickled and no array goes through a pipe."""

import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 numpy knows bfloat16 by name once it is imported
import numpy as np

from onnxproof.errors import Refused

Array = np.ndarray[Any, Any]
Slot = dict[str, Any]
"""Where one array lies: name, dtype, shape, offset and bytes; plain JSON, so that a runtime in any language can read it."""
_ALIGNED = 64
_LEAST = 1 << 16


class Arena:
    """One file that one side writes and the other reads; it grows and never shrinks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._map: mmap.mmap | None = None

    def put(self, arrays: Mapping[str, Array | None]) -> list[Slot | None]:
        """Copy the arrays in, and say where each lies."""
        slots: list[Slot | None] = []
        offset = 0
        for name, array in arrays.items():
            if array is None:
                slots.append(None)
                continue
            if not isinstance(array, np.ndarray) or array.dtype.hasobject:
                raise Refused(
                    "not-a-tensor",
                    f"`{name}` is no plain tensor, and only those can go to a process of its own",
                    help="try `--no-isolate`",
                )
            slots.append(
                {
                    "name": name,
                    "dtype": array.dtype.name,
                    "shape": list(array.shape),
                    "offset": offset,
                    "bytes": array.nbytes,
                }
            )
            offset += -(-array.nbytes // _ALIGNED) * _ALIGNED
        self._reserve(offset)
        for slot, view in zip(slots, self.view(slots), strict=True):
            if slot is not None and view is not None and view.size:
                view[...] = arrays[slot["name"]]
        return slots

    def view(self, slots: Sequence[Slot | None]) -> list[Array | None]:
        """The arrays in place: a reader that keeps one must copy it."""
        if any(slot is not None and slot["offset"] + slot["bytes"] > self._size for slot in slots):
            self._open()
        return [None if slot is None else self._one(slot) for slot in slots]

    def _one(self, slot: Slot) -> Array:
        dtype, shape = np.dtype(slot["dtype"]), tuple(slot["shape"])
        if not slot["bytes"]:
            return np.empty(shape, dtype)
        assert self._map is not None
        return np.ndarray(shape, dtype, buffer=self._map, offset=slot["offset"])

    @property
    def _size(self) -> int:
        return len(self._map) if self._map is not None else 0

    def _reserve(self, size: int) -> None:
        if size > self._size:
            with self.path.open("r+b") as file:
                file.truncate(max(2 * size, _LEAST))
            self._open()

    def _open(self) -> None:
        with self.path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
