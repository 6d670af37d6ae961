"""What the reference computed on the case, whether it is a module or an ONNX file."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.numerics.sketch import KeptArrays, sketch
from onnxproof.onnxmodel.graph import consumed_names, source_of
from onnxproof.reference.traced_value import Fetch, TracedValue, caching_fetch
from onnxproof.runtimes import reference as standard

Array = np.ndarray[Any, Any]
Visit = Callable[[str, Array, onnx.NodeProto | None], None]
"""Called with the name of a value, the value and its node; None for an input."""


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class ReferenceTrace:
    """The reference's values on one case."""

    values: list[TracedValue]
    fetch: Fetch
    module_session: Any = None
    """The module in float64; None where the reference is a graph."""


def trace_reference(scene: Scene) -> ReferenceTrace:
    """Run the reference in float64 and sketch every value on the way."""
    if scene.oracle.tree is None:
        return _trace_graph(scene)
    from onnxproof.reference import trace

    truth = scene.oracle.wide()  # type: ignore[attr-defined]
    values, fetch = trace.trace_with_fetch(truth, scene.case.inputs)
    return ReferenceTrace(
        values=values,
        fetch=fetch,
        module_session=truth.session,
    )


def _trace_graph(scene: Scene) -> ReferenceTrace:
    """The values of a reference file in float64, as the standard defines them."""
    session = standard.open(scene.oracle.path, "float64")  # type: ignore[attr-defined]
    feeds = {name: np.asarray(array) for name, array in scene.case.inputs.items()}
    kept_arrays = KeptArrays()
    traced: list[TracedValue] = []
    places: dict[str, int] = {}

    def add(
        name: str,
        value: Array,
        node: onnx.NodeProto | None,
    ) -> None:
        record = TracedValue(
            place=len(traced),
            op=f"input {name}",
            sketch=sketch(value, kept_arrays),
            dtype=str(value.dtype),
            inputs=(),
            module="",
            source=None,
        )
        if node is not None:
            module, record.source = source_of(node)
            record.module = module or ""
            record.op = node.op_type
            record.inputs = tuple(places[read] for read in consumed_names(node) if read in places)
        places[name] = len(traced)
        traced.append(record)

    _visit_values(session, feeds, add)
    fetch = caching_fetch(traced, lambda place: _compute_value(session, feeds, place))
    return ReferenceTrace(values=traced, fetch=fetch)


def _compute_value(
    session: Any,
    feeds: dict[str, Array],
    wanted: int,
) -> Array | None:
    """The value at a place, by evaluating again."""
    kept: list[Array] = []
    visited = 0

    def keep(
        name: str,
        value: Array,
        node: onnx.NodeProto | None,
    ) -> None:
        nonlocal visited
        if visited == wanted:
            kept.append(np.array(value))
        visited += 1

    _visit_values(session, feeds, keep)
    return next(iter(kept), None)


def _visit_values(
    session: Any,
    feeds: dict[str, Array],
    visit: Visit,
) -> None:
    """Visit the inputs and every value in the order of evaluation, inside subgraphs and functions too."""

    def observer(node: onnx.NodeProto, results: Any) -> Any:
        for name, value in zip(node.output, results, strict=False):
            if name and isinstance(value, np.ndarray | np.generic):
                visit(name, np.asarray(value), node)
        return results

    for name, array in feeds.items():
        visit(name, array, None)
    session.observe(observer, inner=True)
    try:
        session.run(feeds)
    finally:
        session.observe(None, inner=True)
