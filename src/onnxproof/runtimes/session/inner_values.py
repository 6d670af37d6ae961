"""Inner values of a model on any backend: asked for as further outputs, and by cutting the graph where a runtime does not give them.

All values are asked for at once. A backend that refuses that, or dies of it, is asked for half of them with a graph that
is cut down to what those need, and so on: what can't be had alone is left out, and the rest is there.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import BackendMissing, OnnxproofError
from onnxproof.onnxmodel import expansion, onnx_file
from onnxproof.runtimes import open_session
from onnxproof.system import temporary

Array = np.ndarray[Any, Any]
_SESSIONS = 24
"""Sessions that are opened for one look inside at most."""


def values(
    backend: str, path: Path, feeds: Mapping[str, Array], names: Sequence[str]
) -> dict[str, Array]:
    """The values of these names as `backend` computes them for `feeds`; those that it does not give are missing."""
    model = typed(onnx.load(path, load_external_data=False))
    found: dict[str, Array] = {}
    waiting = [list(names)]
    with temporary.Folder() as folder:
        for turn in range(_SESSIONS):
            if not waiting:
                break
            wanted = waiting.pop(0)
            cutting = cut(model, wanted)
            target = onnx_file.save_changed(cutting, path, Path(folder) / f"cut{turn}.onnx")
            try:
                found.update(_asked(backend, target, feeds, wanted))
            except BackendMissing:
                raise
            except OnnxproofError:
                half = len(wanted) // 2
                waiting += [part for part in (wanted[:half], wanted[half:]) if part and half]
    return found


def cut(
    model: onnx.ModelProto, outputs: Sequence[str], inputs: Sequence[str] = ()
) -> onnx.ModelProto:
    """The part of the graph that these outputs need, from the model's inputs or from these inner values.

    The model should be `typed`, so that inner values have a dtype where they become inputs or outputs.
    """
    known = {
        value.name: value
        for value in (*model.graph.value_info, *model.graph.input, *model.graph.output)
    }
    kept, needed = [], set(outputs)
    for node in reversed(model.graph.node):
        if needed & set(node.output) - set(inputs):
            kept.append(node)
            needed |= set(_reads(node))
    part = onnx.ModelProto(
        ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions
    )
    part.graph.name = model.graph.name
    part.graph.node.extend(reversed(kept))
    part.graph.initializer.extend(
        tensor
        for tensor in model.graph.initializer
        if tensor.name in needed and tensor.name not in inputs
    )
    ports = [value for value in model.graph.input if value.name in needed]
    part.graph.input.extend(
        [
            *ports,
            *(
                known.get(name, onnx.ValueInfoProto(name=name))
                for name in inputs
                if name in needed and name not in {p.name for p in ports}
            ),
        ]
    )
    part.graph.output.extend(known.get(name, onnx.ValueInfoProto(name=name)) for name in outputs)
    return part


def typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with the dtype and rank of every inner value, as far as the standard can tell."""
    try:
        return onnx.shape_inference.infer_shapes(model)
    except Exception:  # inference gives up on unknown operators; names alone then have to do
        return model


def _asked(
    backend: str, path: Path, feeds: Mapping[str, Array], names: Sequence[str]
) -> dict[str, Array]:
    session = open_session(backend, path)
    try:
        answer = session.run(
            {name: np.array(array) for name, array in feeds.items() if name in session.input_names}
        )
    finally:
        session.close()
    return {name: value for name, value in zip(names, answer, strict=True) if value is not None}


def _reads(node: onnx.NodeProto) -> Iterable[str]:
    """What a node reads, its subgraphs included; a name that only lives inside one does no harm."""
    for inner in expansion.walk([node]):
        yield from (name for name in inner.input if name)
        for attribute in inner.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from (value.name for value in graph.output)
