"""The reference is an ONNX file: its values in float64, as the standard has them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.numerics.sketch import Shelf, sketch
from onnxproof.onnxmodel.graph import captured, source_of
from onnxproof.reference.traced_value import Entry, Fetch, remembering
from onnxproof.runtimes import reference as standard

Array = np.ndarray[Any, Any]


def followed(scene: Scene) -> tuple[list[Entry], Fetch]:
    """Every value of the reference on the scene's case, and a way to have one of them again."""
    session = standard.open(scene.oracle.path, "float64")  # type: ignore[attr-defined]
    feeds = {name: np.asarray(array) for name, array in scene.case.inputs.items()}
    shelf = Shelf()
    entries: list[Entry] = []
    places: dict[str, int] = {}

    def add(name: str, value: Array, node: onnx.NodeProto | None) -> None:
        module, source = source_of(node) if node is not None else (None, None)
        inputs = (
            tuple(places[read] for read in captured(node) if read in places)
            if node is not None
            else ()
        )
        places[name] = len(entries)
        entries.append(
            Entry(
                place=len(entries),
                op=node.op_type if node is not None else f"input {name}",
                sketch=sketch(value, shelf),
                dtype=str(value.dtype),
                inputs=inputs,
                module=module or "",
                source=source,
            )
        )

    _walked(session, feeds, add)
    return entries, remembering(entries, lambda place: _value(session, feeds, place))


def _value(session: Any, feeds: dict[str, Array], wanted: int) -> Array | None:
    """The value at a place, by evaluating again."""
    kept: list[Array] = []
    seen = iter(range(1 << 62))

    def look(name: str, value: Array, node: onnx.NodeProto | None) -> None:
        if next(seen) == wanted:
            kept.append(np.array(value))

    _walked(session, feeds, look)
    return kept[0] if kept else None


def _walked(
    session: Any,
    feeds: dict[str, Array],
    visit: Callable[[str, Array, onnx.NodeProto | None], None],
) -> None:
    """Visit the inputs and every value in the order in which they are made, inside subgraphs and functions too."""

    def look(node: onnx.NodeProto, found: Any) -> Any:
        for name, value in zip(node.output, found, strict=False):
            if name and isinstance(value, np.ndarray | np.generic):
                visit(name, np.asarray(value), node)
        return found

    for name, array in feeds.items():
        visit(name, array, None)
    session.observe(look, inner=True)
    try:
        session.run(feeds)
    finally:
        session.observe(None, inner=True)
