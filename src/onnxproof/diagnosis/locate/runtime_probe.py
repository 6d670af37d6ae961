"""Inner values as a runtime computes them, where the standard's evaluator lacks an operator or is too slow.

They are rounded as the runtime rounds, so they are compared less finely than in float64. A true value is put in the place of
another by cutting the graph there and feeding it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.locate.evaluation import plain_backend
from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.errors import OnnxproofError, Refused
from onnxproof.numerics.sketch import KeptArrays, Sketch, sketch
from onnxproof.onnxmodel import onnx_file
from onnxproof.onnxmodel.graph import Graph
from onnxproof.runtimes.session import inner_values
from onnxproof.system import temporary

Array = np.ndarray[Any, Any]
_BATCH_BYTES = 256 << 20
"""Values that are read at once. Not measured."""
_FIRST_BATCH = 16
"""Values in the first batch, whose sizes tell how many the next may hold."""


class RuntimeProbe:
    """Stands in for the evaluator: sketches of inner values and the outputs, with some values put in the place of others."""

    def __init__(self, scene: Scene) -> None:
        self._path = scene.path
        loaded = onnx.load(scene.path, load_external_data=False)
        self._model = inner_values.infer_types(loaded)
        self._backend = plain_backend(scene)
        self.output_names: Sequence[str] = [port.name for port in scene.file.outputs]
        graph = Graph.of(scene.file)
        outputs = [name for node in graph.nodes for name in node.output]
        self._names = [name for name in outputs if name and name not in graph.static]
        self._dtypes = {
            value.name: value.type.tensor_type.elem_type
            for value in (*self._model.graph.value_info, *self._model.graph.output)
        }
        self._seen: dict[str, Sketch] = {}
        self._deadline = scene.deadline

    def observed(
        self,
        feeds: Mapping[str, Array],
        replacements: Mapping[str, Array],
        *,
        sketching: bool,
    ) -> tuple[dict[str, Sketch], list[Array]]:
        """Sketches of every value that the runtime gives, and the outputs."""
        with temporary.Folder() as folder:
            path = self._path
            inputs = dict(feeds)
            if replacements:
                path = self._cut(Path(folder), list(replacements))
                inputs |= self._with_port_dtypes(replacements)
            outputs = inner_values.values(self._backend, path, inputs, self.output_names)
            if any(name not in outputs for name in self.output_names):
                raise Refused(
                    "unread",
                    f"`{self._backend}` does not give every output of the graph when it is cut",
                )
            if sketching:
                self._seen = self._seen | dict(self._sketches(path, inputs))
        return self._seen, [outputs[name] for name in self.output_names]

    def _sketches(self, path: Path, inputs: Mapping[str, Array]) -> Iterator[tuple[str, Sketch]]:
        """Batch by batch: a session each, as many values as the budget holds, and only their sketches are kept."""
        nodes = onnx.load(path, load_external_data=False).graph.node
        computed = {name for node in nodes for name in node.output}
        waiting = [name for name in self._names if name in computed]
        kept_arrays = KeptArrays()
        size = _FIRST_BATCH
        while waiting and not self._deadline.passed:
            batch = waiting[:size]
            waiting = waiting[size:]
            values = inner_values.values(self._backend, path, inputs, batch)
            largest = max((value.nbytes for value in values.values()), default=1)
            size = max(1, _BATCH_BYTES // max(largest, 1))
            for name in list(values):
                yield name, sketch(np.asarray(values.pop(name)), kept_arrays)

    def _cut(self, folder: Path, names: list[str]) -> Path:
        """A copy of the graph in which these values are inputs."""
        part = inner_values.cut(self._model, self.output_names, names)
        for port in part.graph.input:
            if not port.HasField("type"):  # the standard infers none for operators of a runtime
                port.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        return onnx_file.save_changed(part, self._path, folder / "cut.onnx")

    def _with_port_dtypes(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Values in the dtypes and the shapes that the graph has at their places."""
        converted: dict[str, Array] = {}
        for name, array in values.items():
            seen = self._seen.get(name)
            if seen is not None and seen.count == array.size:
                array = array.reshape(seen.shape)
            elem_type = self._dtypes.get(name) or onnx.TensorProto.FLOAT
            converted[name] = array.astype(onnx.helper.tensor_dtype_to_np_dtype(elem_type))
        return converted


def open_probe(scene: Scene) -> RuntimeProbe | None:
    """The stand-in, or None where the file can't be read as a graph."""
    try:
        return RuntimeProbe(scene)
    except (OnnxproofError, ValueError):
        return None
