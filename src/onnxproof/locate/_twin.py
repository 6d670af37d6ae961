"""The reference is an ONNX file: its values in float64, as the standard has them."""

from typing import Any

import numpy as np
import onnx

from onnxproof.backends import reference as standard
from onnxproof.locate._entry import Entry, Fetch, remembering
from onnxproof.locate._graph import captured, source_of
from onnxproof.locate._scene import Scene
from onnxproof.locate._sketch import Shelf, sketch

Array = np.ndarray[Any, Any]


def followed(scene: Scene) -> tuple[list[Entry], Fetch]:
    """Every value of the reference on the scene's case, and a way to have one of them again."""
    session = standard.open(scene.oracle.path, "float64")  # type: ignore[attr-defined]
    feeds = {name: np.asarray(array) for name, array in scene.case.inputs.items()}
    shelf = Shelf()
    entries: list[Entry] = []
    places: dict[str, int] = {}
    names: dict[int, str] = {}

    def add(name: str, op: str, value: Array, node: onnx.NodeProto | None) -> None:
        module, source = source_of(node) if node is not None else (None, None)
        inputs = tuple(places[read] for read in captured(node) if read in places) if node is not None else ()
        places[name] = len(entries)
        names[len(entries)] = name
        entries.append(Entry(place=len(entries), op=op, sketch=sketch(value, shelf), dtype=str(value.dtype), inputs=inputs, module=module or "", source=source))

    def look(node: onnx.NodeProto, found: Any) -> Any:
        for name, value in zip(node.output, found, strict=False):
            if name and isinstance(value, np.ndarray | np.generic):
                add(name, node.op_type, np.asarray(value), node)
        return found

    for name, array in feeds.items():
        add(name, f"input {name}", array, None)
    _watched(session, look, feeds)
    return entries, remembering(entries, lambda place: _value(session, feeds, names.get(place, "")))


def _value(session: Any, feeds: dict[str, Array], wanted: str) -> Array | None:
    kept: list[Array] = []

    def look(node: onnx.NodeProto, found: Any) -> Any:
        kept.extend(np.array(value) for name, value in zip(node.output, found, strict=False) if name == wanted)
        return found

    _watched(session, look, feeds)
    return kept[0] if kept else feeds.get(wanted)


def _watched(session: Any, look: Any, feeds: dict[str, Array]) -> None:
    session.observe(look)
    try:
        session.run(feeds)
    finally:
        session.observe(None)
