"""Where the standard's evaluator lacks an operator or is too slow: the values as a runtime computes them, in batches under a byte budget.

They are rounded as the runtime rounds, so they are compared less finely than in float64. A true value is put in the place of
another by cutting the graph there and feeding it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.errors import OnnxproofError, Refused
from onnxproof.numerics.sketch import Shelf, Sketch, sketch
from onnxproof.onnxmodel import onnx_file
from onnxproof.onnxmodel.graph import Graph
from onnxproof.runtimes import parse
from onnxproof.runtimes.session import inner_values
from onnxproof.system import temporary

Array = np.ndarray[Any, Any]
_BUDGET_BYTES = 256 << 20
_FIRST = 16
"""Values in the first batch, whose sizes tell how many the next may hold."""


class Probing:
    """Stands in for the evaluator: gives sketches of inner values and the outputs, with some values put in the place of others."""

    def __init__(self, scene: Scene) -> None:
        self._path, self._model = (
            scene.path,
            inner_values.infer_types(onnx.load(scene.path, load_external_data=False)),
        )
        self._backend = "ort:disabled" if parse(scene.backend)[0] == "ort" else scene.backend
        self.output_names: Sequence[str] = [port.name for port in scene.file.outputs]
        graph = Graph.of(scene.file)
        self._names = [
            name
            for node in graph.nodes
            for name in node.output
            if name and name not in graph.static
        ]
        self._dtypes = {
            value.name: value.type.tensor_type.elem_type
            for value in (*self._model.graph.value_info, *self._model.graph.output)
        }
        self._seen: dict[str, Sketch] = {}
        self._deadline = scene.deadline

    def observed(
        self, feeds: Mapping[str, Array], replace: Mapping[str, Array], *, sketching: bool
    ) -> tuple[dict[str, Sketch], list[Array]]:
        """Sketches of every value that the runtime gives, and the outputs."""
        with temporary.Folder() as folder:
            path, fed = (
                (self._path, dict(feeds))
                if not replace
                else self._cut(Path(folder), feeds, replace)
            )
            found = inner_values.values(self._backend, path, fed, self.output_names)
            if any(name not in found for name in self.output_names):
                raise Refused(
                    "unread",
                    f"`{self._backend}` does not give every output of the graph when it is cut",
                )
            if sketching:
                made = {
                    name
                    for node in onnx.load(path, load_external_data=False).graph.node
                    for name in node.output
                }
                self._seen = self._seen | dict(
                    self._sketches(path, fed, [name for name in self._names if name in made])
                )
        return self._seen, [found[name] for name in self.output_names]

    def _sketches(
        self, path: Path, feeds: Mapping[str, Array], names: Sequence[str]
    ) -> Iterator[tuple[str, Sketch]]:
        """Batch by batch: a session each, as many values as the budget holds, and only their sketches are kept."""
        shelf, size, waiting = Shelf(), _FIRST, list(names)
        while waiting and not self._deadline.passed:
            batch, waiting = waiting[:size], waiting[size:]
            found = inner_values.values(self._backend, path, feeds, batch)
            largest = max((value.nbytes for value in found.values()), default=1)
            size = max(1, _BUDGET_BYTES // max(largest, 1))
            for name in list(found):
                yield name, sketch(np.asarray(found.pop(name)), shelf)

    def _cut(
        self, folder: Path, feeds: Mapping[str, Array], replace: Mapping[str, Array]
    ) -> tuple[Path, dict[str, Array]]:
        part = inner_values.cut(self._model, self.output_names, list(replace))
        put = {
            name: array.astype(
                onnx.helper.tensor_dtype_to_np_dtype(
                    self._dtypes.get(name) or onnx.TensorProto.FLOAT
                )
            )
            for name, array in replace.items()
        }
        return onnx_file.save_changed(part, self._path, folder / "cut.onnx"), {**feeds, **put}


def opened(scene: Scene) -> Probing | None:
    """The stand-in, or None where the file can't be read as a graph."""
    try:
        return Probing(scene)
    except (OnnxproofError, ValueError):
        return None
