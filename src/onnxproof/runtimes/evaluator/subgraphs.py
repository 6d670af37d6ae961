"""Loop, Scan and SequenceMap as the standard defines them.

onnx's own evaluator runs no iteration of a Loop without `cond`, stacks the scan outputs of a Loop along an axis that is
there already, knows the first axis of a Scan alone, and hands a SequenceMap whole sequences instead of their elements.
"""

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

    def _call(self, context: Any, attributes: Any, given: Sequence[Any]) -> list[Any]:
        """One run of the body. Its own inputs hide outer names that are the same."""
        named = dict(zip(self._evaluator.input_names, given, strict=True))
        return list(self._evaluator.run(None, {**(context or {}), **named}, attributes=attributes))

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
        collected: list[list[Array]] = [
            [] for _ in self._evaluator.output_names[1 + len(carried) :]
        ]
        going = condition is None or bool(np.asarray(condition).reshape(()))
        most = None if limit is None else int(np.asarray(limit).reshape(()))
        step = 0
        while going and (most is None or step < most):
            answers = self._call(
                context,
                attributes,
                [self._scalar(0, step, np.int64), self._scalar(1, True, np.bool_), *carried],
            )
            going, step = bool(np.asarray(answers[0]).reshape(())), step + 1
            carried = answers[1 : 1 + len(carried)]
            for values, value in zip(collected, answers[1 + len(carried) :], strict=True):
                values.append(value)
            if condition is None and not going and step != most:
                raise NotImplementedError(
                    "a Loop without `cond` whose body says stop: the standard goes on there, ONNX Runtime stops"
                )
        first = 1 + len(carried)
        return (
            *carried,
            *(self._stacked(values, first + place) for place, values in enumerate(collected)),
        )

    def _scalar(self, place: int, value: Any, dtype: Any) -> Array:
        """A number in the rank that the body declares: some exporters write [1]."""
        tensor = self._port("input", place).tensor_type
        return np.full([1] * len(tensor.shape.dim), value, dtype)

    def _stacked(self, values: Sequence[Array], place: int) -> Array:
        return np.stack(values) if values else _nothing(self._port("output", place), 0)


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
        carried, scanned = (
            list(args[: len(args) - num_scan_inputs]),
            args[len(args) - num_scan_inputs :],
        )
        ways = zip(
            scanned,
            _each(scan_input_axes, num_scan_inputs),
            _each(scan_input_directions, num_scan_inputs),
            strict=True,
        )
        slices = [_turned(np.moveaxis(value, axis, 0), back) for value, axis, back in ways]
        if len({len(value) for value in slices}) > 1:
            raise ValueError(
                f"the inputs have {', '.join(str(len(value)) for value in slices)} slices"
            )
        collected: list[list[Array]] = [[] for _ in self._evaluator.output_names[len(carried) :]]
        for step in range(slices[0].shape[0]):
            answers = self._call(
                context, attributes, [*carried, *(value[step] for value in slices)]
            )
            carried = answers[: len(carried)]
            for values, value in zip(collected, answers[len(carried) :], strict=True):
                values.append(value)
        axes, backs = (
            _each(scan_output_axes, len(collected)),
            _each(scan_output_directions, len(collected)),
        )
        first = len(carried)
        return (
            *carried,
            *(
                self._stacked(values, first + place, axes[place], backs[place])
                for place, values in enumerate(collected)
            ),
        )

    def _stacked(self, values: Sequence[Array], place: int, axis: int, back: int) -> Array:
        return (
            np.stack(_turned(values, back), axis)
            if values
            else _nothing(self._port("output", place), axis)
        )


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
            given = [
                element,
                *(other[place] if isinstance(other, list) else other for other in others),
            ]
            for values, value in zip(
                collected, self._call(context, attributes, given), strict=True
            ):
                values.append(value)
        return tuple(collected)


def _nothing(kind: onnx.TypeProto, axis: int) -> Array:
    """The stack of no slices, in the rank that the body declares; what it leaves open is 0, as in ONNX Runtime."""
    tensor = kind.tensor_type
    if not tensor.elem_type:
        raise NotImplementedError(
            "no iteration, and the body does not say what it would have given"
        )
    dims = [dim.dim_value for dim in tensor.shape.dim]
    dims.insert(axis if axis >= 0 else len(dims) + 1 + axis, 0)
    return np.zeros(dims, onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))


def _each(given: Sequence[int] | None, count: int) -> list[int]:
    return list(given) if given else [0] * count


def _turned(values: Any, back: int) -> Any:
    return values[::-1] if back else values
