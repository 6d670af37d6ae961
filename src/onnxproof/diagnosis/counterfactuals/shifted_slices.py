"""A slice that begins or ends one place too early or too late."""

import itertools
from collections.abc import Iterator

import numpy as np
import onnx

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench, node_name

_STARTS = 1
_ENDS = 2
_SHIFTS = (-1, 0, 1)
_ANY_END = 1 << 30
"""An end beyond this means the end of the axis, whatever its size."""


def try_shifted_slices(workbench: Workbench) -> Tried | None:
    """Move the constant starts and ends of the located slices by one."""
    for node in workbench.nodes[: limits.SUSPECTS_EDITED]:
        if node.op_type != "Slice":
            continue
        constants = {place: value for place, _, value in workbench.constants(node)}
        for starts, ends in _shifted(constants.get(_STARTS), constants.get(_ENDS)):
            tried = _try(workbench, node, starts, ends)
            if tried is not None:
                return tried
    return None


def _shifted(starts: Array | None, ends: Array | None) -> Iterator[tuple[Array | None, ...]]:
    """Starts and ends with one of the axes moved at either end; None where it stays as it is."""
    size = max(value.size for value in (starts, ends, np.zeros(1)) if value is not None)
    for axis, by, by_end in itertools.product(range(size), _SHIFTS, _SHIFTS):
        moved = _moved(starts, axis, by), _moved(ends, axis, by_end)
        if any(value is not None for value in moved):
            yield moved


def _moved(value: Array | None, axis: int, by: int) -> Array | None:
    """A copy with one place moved; None where it stays, or would change its sign or its meaning."""
    if value is None or not by or axis >= value.size:
        return None
    moved = np.array(value).reshape(-1)
    if abs(int(moved[axis])) >= _ANY_END or (moved[axis] < 0) != (moved[axis] + by < 0):
        return None
    moved[axis] += by
    return moved.reshape(value.shape)


def _try(
    workbench: Workbench, node: onnx.NodeProto, starts: Array | None, ends: Array | None
) -> Tried | None:
    name = node_name(node)
    changes = {_STARTS: starts, _ENDS: ends}
    model = workbench.with_constants(
        node, {place: value for place, value in changes.items() if value is not None}
    )
    words = []
    if starts is not None:
        words.append(f"starts {starts.tolist()}")
    if ends is not None:
        words.append(f"ends {ends.tolist()}")
    told = " and ".join(words)
    return workbench.try_model(
        model,
        evidence=f"{name} (Slice) with {told} gives what the module gives",
        fix=f"let {name} have {told}",
    )
