"""Loop, Scan and SequenceMap as the standard defines them.

onnx's own evaluator runs no iteration of a Loop without `cond`, stacks the scan outputs of a Loop along an axis that is
there already, knows the first axis of a Scan alone, and hands a SequenceMap whole sequences instead of their elements.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]


class _WithBody(OpRun):
    """An operator with a body that may read names of the graph around it."""

    def need_context(self) -> bool:
        """Outer names are handed in as the context."""
        return True

    @property
    def _evaluator(self) -> Any:
        return self.body  # type: ignore[attr-defined]

    def _call(
        self,
        context: Any,
        attributes: Any,
        inputs: Sequence[Any],
    ) -> list[Any]:
        """One run of the body. Its own inputs hide outer names that are the same."""
        named = dict(zip(self._evaluator.input_names, inputs, strict=True))
        feeds = {**(context or {}), **named}
        return list(self._evaluator.run(None, feeds, attributes=attributes))

    def _port(self, side: str, place: int) -> onnx.TypeProto:
        """What the body says about one of its inputs or outputs."""
        kind: onnx.TypeProto = getattr(self._evaluator.onnx_graph_, side)[place].type
        return kind


class Loop(_WithBody):
    """A body that is run a number of times, or until it says that it is done."""

    def _run(
        self,
        limit: Array | None = None,
        condition: Array | None = None,
        *state: Any,
        context: Any = None,
        attributes: Any = None,
        **_: Any,
    ) -> tuple[Any, ...]:
        carried = list(state)
        first = 1 + len(carried)
        collected: list[list[Array]] = [[] for _ in self._evaluator.output_names[first:]]
        going = condition is None or bool(np.asarray(condition).reshape(()))
        limit_steps = math.inf if limit is None else int(np.asarray(limit).reshape(()))
        step = 0
        while going and step < limit_steps:
            turn = self._scalar(0, step, np.int64)
            condition_in = self._scalar(1, True, np.bool_)
            outputs = self._call(context, attributes, [turn, condition_in, *carried])
            going = bool(np.asarray(outputs[0]).reshape(()))
            step += 1
            carried = outputs[1:first]
            for values, value in zip(collected, outputs[first:], strict=True):
                values.append(value)
            if condition is None and not going and step != limit_steps:
                raise NotImplementedError(
                    "a Loop without `cond` whose body says stop: the standard goes on there, ONNX Runtime stops"
                )
        stacks = [self._stack(values, first + place) for place, values in enumerate(collected)]
        return (*carried, *stacks)

    def _scalar(self, place: int, value: Any, dtype: Any) -> Array:
        """A number in the rank that the body declares: some exporters write [1]."""
        tensor = self._port("input", place).tensor_type
        return np.full([1] * len(tensor.shape.dim), value, dtype)

    def _stack(self, values: Sequence[Array], place: int) -> Array:
        if not values:
            return _empty_stack(self._port("output", place), 0)
        return np.stack(values)


class Scan(_WithBody):
    """A body over the slices of its inputs, with what it carries from one to the next."""

    def _run(
        self,
        *args: Any,
        context: Any = None,
        attributes: Any = None,
        num_scan_inputs: int = 1,
        scan_input_axes: Sequence[int] | None = None,
        scan_input_directions: Sequence[int] | None = None,
        scan_output_axes: Sequence[int] | None = None,
        scan_output_directions: Sequence[int] | None = None,
        **_: Any,
    ) -> tuple[Any, ...]:
        count = len(args) - num_scan_inputs
        carried, scanned = list(args[:count]), args[count:]
        axes = _or_zeros(scan_input_axes, num_scan_inputs)
        directions = _or_zeros(scan_input_directions, num_scan_inputs)
        slices = [
            _reverse_if(np.moveaxis(value, axis, 0), back)
            for value, axis, back in zip(scanned, axes, directions, strict=True)
        ]
        if len({len(value) for value in slices}) > 1:
            raise ValueError(
                f"the inputs have {', '.join(str(len(value)) for value in slices)} slices"
            )
        collected: list[list[Array]] = [[] for _ in self._evaluator.output_names[count:]]
        for step in range(slices[0].shape[0]):
            here = [value[step] for value in slices]
            outputs = self._call(context, attributes, [*carried, *here])
            carried = outputs[:count]
            for values, value in zip(collected, outputs[count:], strict=True):
                values.append(value)
        out_axes = _or_zeros(scan_output_axes, len(collected))
        out_directions = _or_zeros(scan_output_directions, len(collected))
        stacks = [
            self._stack(values, count + place, out_axes[place], out_directions[place])
            for place, values in enumerate(collected)
        ]
        return (*carried, *stacks)

    def _stack(
        self,
        values: Sequence[Array],
        place: int,
        axis: int,
        back: int,
    ) -> Array:
        if not values:
            return _empty_stack(self._port("output", place), axis)
        return np.stack(_reverse_if(values, back), axis)


class BatchScan(Scan):
    """The Scan of opset 8: each row of a batch is scanned by itself, along the second axis, as far as its length says."""

    op_schema = onnx.defs.get_schema("Scan", 8)

    def _run(  # type: ignore[override]
        self,
        lengths: Array | None,
        *args: Any,
        num_scan_inputs: int = 1,
        directions: Sequence[int] | None = None,
        **options: Any,
    ) -> tuple[Any, ...]:
        if lengths is not None:
            raise NotImplementedError("the Scan of opset 8 with lengths")
        rows = [
            super(BatchScan, self)._run(
                *(value[row] for value in args),
                num_scan_inputs=num_scan_inputs,
                scan_input_directions=directions,
                **options,
            )
            for row in range(len(args[0]))
        ]
        return tuple(np.stack(values) for values in zip(*rows, strict=True))


class SequenceMap(_WithBody):
    """A body for each element of a sequence; other sequences go along with it, and tensors stay as they are."""

    def _run(
        self,
        first: Sequence[Any],
        *others: Any,
        context: Any = None,
        attributes: Any = None,
        **_: Any,
    ) -> tuple[list[Any], ...]:
        collected: list[list[Any]] = [[] for _ in self._evaluator.output_names]
        if any(isinstance(other, list) and len(other) != len(first) for other in others):
            raise ValueError("the sequences have different lengths")
        for place, element in enumerate(first):
            inputs = [element]
            for other in others:
                inputs.append(other[place] if isinstance(other, list) else other)
            outputs = self._call(context, attributes, inputs)
            for values, value in zip(collected, outputs, strict=True):
                values.append(value)
        return tuple(collected)


def _empty_stack(kind: onnx.TypeProto, axis: int) -> Array:
    """The stack of no slices, in the rank that the body declares; what it leaves open is 0, as in ONNX Runtime."""
    tensor = kind.tensor_type
    if not tensor.elem_type:
        raise NotImplementedError(
            "no iteration, and the body does not say what it would have given"
        )
    dims = [dim.dim_value for dim in tensor.shape.dim]
    if axis < 0:
        axis += len(dims) + 1
    dims.insert(axis, 0)
    return np.zeros(dims, onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))


def _or_zeros(values: Sequence[int] | None, count: int) -> list[int]:
    return list(values or [0] * count)


def _reverse_if(values: Any, back: int) -> Any:
    if back:
        return values[::-1]
    return values
