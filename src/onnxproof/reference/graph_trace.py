"""The reference is an ONNX file: its values in float64, as the standard has them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxproof.numerics.sketch import KeptArrays, sketch
from onnxproof.onnxmodel.graph import consumed_names, source_of
from onnxproof.reference.traced_value import Fetch, TracedValue, caching_fetch
from onnxproof.runtimes import reference as standard

Array = np.ndarray[Any, Any]


def trace(path: Path, inputs: Mapping[str, Array]) -> tuple[list[TracedValue], Fetch]:
    """Every value of the graph for these inputs, and a function that fetches one of them again."""
    session = standard.open(path, "float64")
    feeds = {name: np.asarray(array) for name, array in inputs.items()}
    recorder = _Recorder()
    _visit_values(session, feeds, recorder.add)
    values = recorder.values
    return values, caching_fetch(values, lambda place: _value_at(session, feeds, place))


class _Recorder:
    """Records every value, linked to those of the values that its node reads."""

    def __init__(self) -> None:
        self.values: list[TracedValue] = []
        self._kept_arrays = KeptArrays()
        self._places: dict[str, int] = {}

    def add(
        self,
        name: str,
        value: Array,
        node: onnx.NodeProto | None,
    ) -> None:
        """The next value; `node` is None for an input of the graph."""
        op = f"input {name}"
        inputs: tuple[int, ...] = ()
        module, source = None, None
        if node is not None:
            op, inputs = node.op_type, self._inputs(node)
            module, source = source_of(node)
        self._places[name] = len(self.values)
        self.values.append(
            TracedValue(
                place=len(self.values),
                op=op,
                sketch=sketch(value, self._kept_arrays),
                dtype=str(value.dtype),
                inputs=inputs,
                module=module or "",
                source=source,
            )
        )

    def _inputs(self, node: onnx.NodeProto) -> tuple[int, ...]:
        return tuple(self._places[name] for name in consumed_names(node) if name in self._places)


def _value_at(session: Any, feeds: dict[str, Array], wanted: int) -> Array | None:
    """The value at a place, by evaluating again."""
    kept: list[Array] = []
    seen = iter(range(1 << 62))

    def look(name: str, value: Array, node: onnx.NodeProto | None) -> None:
        if next(seen) == wanted:
            kept.append(np.array(value))

    _visit_values(session, feeds, look)
    return next(iter(kept), None)


def _visit_values(
    session: Any,
    feeds: dict[str, Array],
    visit: Callable[[str, Array, onnx.NodeProto | None], None],
) -> None:
    """Visit the inputs and every value in the order in which they are computed, inside subgraphs and functions too."""

    def look(node: onnx.NodeProto, outputs: Any) -> Any:
        for name, value in zip(node.output, outputs, strict=False):
            if name and isinstance(value, np.ndarray | np.generic):
                visit(name, np.asarray(value), node)
        return outputs

    for name, array in feeds.items():
        visit(name, array, None)
    session.observe(look, inner=True)
    try:
        session.run(feeds)
    finally:
        session.observe(None, inner=True)
