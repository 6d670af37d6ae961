"""Scan as the standard defines it: along any axis, in both directions. The evaluator knows the first axis alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]


class Scan(OpRun):
    """A body over the slices of its inputs, with what it carries from one to the next."""

    def need_context(self) -> bool:
        """The body may read names of the graph around it."""
        return True

    def _run(self, *args: Any, context: Any = None, num_scan_inputs: int = 1, scan_input_axes: Sequence[int] | None = None, scan_input_directions: Sequence[int] | None = None,
             scan_output_axes: Sequence[int] | None = None, scan_output_directions: Sequence[int] | None = None, **_: Any) -> tuple[Any, ...]:
        body: Any = self.body  # type: ignore[attr-defined]
        carried, scanned = list(args[: len(args) - num_scan_inputs]), args[len(args) - num_scan_inputs :]
        slices = [_turned(np.moveaxis(value, axis, 0), back) for value, axis, back in zip(scanned, _each(scan_input_axes, num_scan_inputs),
                                                                                        _each(scan_input_directions, num_scan_inputs), strict=True)]
        made: list[list[Array]] = [[] for _ in body.output_names[len(carried) :]]
        for step in range(slices[0].shape[0]):
            given = dict(zip(body.input_names, [*carried, *(s[step] for s in slices)], strict=True))
            found = body.run(None, {**(context or {}), **given})
            carried = list(found[: len(carried)])
            for values, value in zip(made, found[len(carried) :], strict=True):
                values.append(value)
        return (*carried, *(np.stack(_turned(values, back), axis) for values, axis, back in zip(made, _each(scan_output_axes, len(made)),
                                                                                               _each(scan_output_directions, len(made)), strict=True)))


def _each(given: Sequence[int] | None, count: int) -> list[int]:
    return list(given) if given else [0] * count


def _turned(values: Any, back: int) -> Any:
    return values[::-1] if back else values
