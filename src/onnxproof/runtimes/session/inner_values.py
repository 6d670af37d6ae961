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
"""Sessions that are opened at most for the values of one model. Not measured."""


def values(
    backend: str,
    path: Path,
    feeds: Mapping[str, Array],
    names: Sequence[str],
) -> dict[str, Array]:
    """The values of these names as `backend` computes them for `feeds`; those that it does not give are missing."""
    model = infer_types(onnx.load(path, load_external_data=False))
    values_by_name: dict[str, Array] = {}
    waiting = [list(names)]
    with temporary.Folder() as folder:
        for turn in range(_SESSIONS):
            if not waiting:
                break
            wanted = waiting.pop(0)
            part = cut(model, wanted)
            target = onnx_file.save_changed(part, path, Path(folder) / f"cut{turn}.onnx")
            try:
                values_by_name.update(_run_once(backend, target, feeds, wanted))
            except BackendMissing:
                raise
            except OnnxproofError:
                half = len(wanted) // 2
                waiting += [part for part in (wanted[:half], wanted[half:]) if part and half]
    return values_by_name


def cut(
    model: onnx.ModelProto,
    outputs: Sequence[str],
    inputs: Sequence[str] = (),
) -> onnx.ModelProto:
    """The part of the graph that these outputs need, from the model's inputs or from these inner values.

    The model should be run through `infer_types`, so that inner values have a dtype where they become inputs or outputs.
    """
    graph = model.graph
    known = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
    nodes, needed = _needed_nodes(graph, outputs, inputs)
    part = onnx.ModelProto(
        ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions
    )
    part.graph.name = graph.name
    part.graph.node.extend(nodes)
    part.graph.initializer.extend(
        tensor for tensor in graph.initializer if tensor.name in needed - set(inputs)
    )
    ports = [value for value in graph.input if value.name in needed]
    port_names = {port.name for port in ports}
    new_inputs = [name for name in inputs if name in needed and name not in port_names]
    part.graph.input.extend(ports)
    part.graph.input.extend(_value_info(known, name) for name in new_inputs)
    part.graph.output.extend(_value_info(known, name) for name in outputs)
    return part


def _needed_nodes(
    graph: onnx.GraphProto,
    outputs: Sequence[str],
    inputs: Sequence[str],
) -> tuple[list[onnx.NodeProto], set[str]]:
    """The nodes between inputs and outputs, in their order, and every name that they read."""
    nodes: list[onnx.NodeProto] = []
    needed = set(outputs)
    for node in reversed(graph.node):
        if needed & set(node.output) - set(inputs):
            nodes.append(node)
            needed |= set(_reads(node))
    return nodes[::-1], needed


def _value_info(known: Mapping[str, onnx.ValueInfoProto], name: str) -> onnx.ValueInfoProto:
    return known.get(name, onnx.ValueInfoProto(name=name))


def infer_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with the dtype and rank of every inner value, as far as the standard can tell."""
    try:
        return onnx.shape_inference.infer_shapes(model)
    except Exception:  # inference gives up on unknown operators; names alone then have to do
        return model


def _run_once(
    backend: str,
    path: Path,
    feeds: Mapping[str, Array],
    names: Sequence[str],
) -> dict[str, Array]:
    session = open_session(backend, path)
    try:
        copies = {name: np.array(feeds[name]) for name in feeds if name in session.input_names}
        outputs = session.run(copies)
    finally:
        session.close()
    return {name: value for name, value in zip(names, outputs, strict=True) if value is not None}


def _reads(node: onnx.NodeProto) -> Iterable[str]:
    """What a node reads, its subgraphs included; a name that only lives inside one does no harm."""
    for inner in expansion.walk([node]):
        yield from (name for name in inner.input if name)
        for attribute in inner.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from (value.name for value in graph.output)
