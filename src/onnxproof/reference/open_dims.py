"""The open dims of a pair of models, with the sizes that the exporter promised or assumed for them."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.results import DimInfo

_RANGES = "pkg.torch.export.ExportedProgram.range_constraints"
_DIMS = "onnxproof.dims"
_NO_BOUND = 1 << 31
"""Beyond it a recorded bound is only the end of the integers."""


class OpenDims:
    """The open dims met so far, by name."""

    def __init__(self, file: OnnxFile) -> None:
        self._dims: dict[str, DimInfo] = {}
        self._assumed_maxima = _assumed_maxima(file)
        self._exported = _exported_dims(file)

    def add(self, info: DimInfo) -> str:
        """The name under which this dim is known; one name for two sizes gives two dims."""
        old = self._dims.get(info.name)
        if old is not None and old.example != info.example and 1 not in (old.example, info.example):
            info = replace(info, name=f"{info.name}_{info.example}")
        if info.name not in self._dims or info.declared:
            self._dims[info.name] = self._with_range(info)
        return info.name

    def _with_range(self, info: DimInfo) -> DimInfo:
        """With the sizes that were promised, or else those that were assumed: beyond an assumption the file must be tried."""
        if self._exported is None:
            return replace(info, recorded=(None, max(self._assumed_maxima, default=None)))
        entry = self._exported.get(info.name, {})
        if entry.get("promised") and info.maximum is None:
            return replace(info, minimum=entry["minimum"], maximum=entry.get("maximum"))
        return replace(info, recorded=(entry.get("minimum") or None, entry.get("maximum")))

    def all(self) -> tuple[DimInfo, ...]:
        """Every one, in the order of their first use."""
        return tuple(self._dims.values())


def _assumed_maxima(file: OnnxFile) -> tuple[int, ...]:
    """The upper bounds torch assumed. It keeps them under names that the file no longer uses, so they are a pool."""
    bounds = re.findall(r"VR\[\d+, (\d{1,18})\]", file.metadata(_RANGES))
    return tuple(int(bound) for bound in bounds if int(bound) < _NO_BOUND)


def _exported_dims(file: OnnxFile) -> dict[str, Any] | None:
    """What `onnxproof export` wrote about each dim of a file; None for other files."""
    try:
        entries = json.loads(file.metadata(_DIMS) or "null")
        if not all(map(_is_range, entries)):
            return None
        return {str(entry["name"]): entry for entry in entries}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # there is nothing, or another tool's


def _is_range(entry: Mapping[str, Any]) -> bool:
    """Whether the sizes of an entry are sizes, and in order; a promise needs the smaller one."""
    low, high = entry.get("minimum"), entry.get("maximum")
    sizes = [size for size in (low, high) if size is not None]
    if entry.get("promised") and low is None:
        return False
    return all(type(size) is int and size >= 0 for size in sizes) and sizes == sorted(sizes)
