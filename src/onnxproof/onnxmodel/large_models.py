"""Graphs that were changed, of any size: a protobuf holds 2 GB, so beyond half of that weights are written beside the graph."""

import hashlib
from pathlib import Path

import onnx
from onnx import external_data_helper

from onnxproof.onnxmodel import mapped_weights

MOST_INLINE = 1 << 30
"""Bytes of a model that is written as one file: serializing it makes a copy. Not measured."""
_SMALL = 1 << 16
"""Bytes of a weight that stays in the graph then. Not measured."""
_PAGE = 4096
"""External data starts at a multiple of this, so that runtimes can map it."""


def is_large(model: onnx.ModelProto) -> bool:
    """Whether it is written with its weights beside it."""
    weights = model.graph.initializer
    inline = sum(len(tensor.raw_data) for tensor in weights)
    return inline >= MOST_INLINE or any(map(mapped_weights.is_mapped, weights))


def fits_in_memory(model: onnx.ModelProto) -> bool:
    """Whether what is in the graph itself, without weights that stay in a file, can be serialized."""
    return sum(len(tensor.raw_data) for tensor in model.graph.initializer) < MOST_INLINE


def save(model: onnx.ModelProto, path: str | Path) -> list[Path]:
    """Write a model, which stays as it is; returns the files that it became, the graph first."""
    path = Path(path)
    if not is_large(model):
        onnx.save(model, path)
        return [path]
    data = path.with_name(f"{path.name}.data")
    onnx.save(_with_weights_in(model, data), path)
    return [path, data]


def digest(model: onnx.ModelProto) -> str:
    """SHA-256 of all that a model says; its weights are hashed one by one."""
    sha = hashlib.sha256()
    for tensor in model.graph.initializer:
        sha.update(tensor.SerializeToString(deterministic=True))
    sha.update(_without_weights(model).SerializeToString(deterministic=True))
    return sha.hexdigest()


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The rest of a model; no weight is copied on the way."""
    rest = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name == "graph":
            continue
        if _is_repeated(field):
            getattr(rest, field.name).extend(value)
        else:
            setattr(rest, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name == "initializer":
            continue
        if _is_repeated(field):
            getattr(rest.graph, field.name).extend(value)
        else:
            setattr(rest.graph, field.name, value)
    return rest


def _is_repeated(field: object) -> bool:
    repeated = getattr(field, "is_repeated", None)
    if repeated is None:  # protobuf before 6
        return bool(field.label == field.LABEL_REPEATED)  # type: ignore[attr-defined]
    return bool(repeated)


def _bytes_in(tensor: onnx.TensorProto) -> bytes | memoryview:
    """Of the graph, or of the file in which they stay."""
    if mapped_weights.is_mapped(tensor):
        return mapped_weights.to_array(tensor).view("uint8").data
    raw: bytes = tensor.raw_data
    return raw


def _with_weights_in(model: onnx.ModelProto, data: Path) -> onnx.ModelProto:
    """The same graph with its large weights written to a file."""
    slim = _without_weights(model)
    with data.open("wb") as stream:
        for tensor in model.graph.initializer:
            is_mapped = mapped_weights.is_mapped(tensor)
            if len(tensor.raw_data) <= _SMALL and not is_mapped:
                slim.graph.initializer.append(tensor)
                continue
            stream.seek(-(-stream.tell() // _PAGE) * _PAGE)
            begin = stream.tell()
            stream.write(_bytes_in(tensor))
            moved = slim.graph.initializer.add(
                name=tensor.name, dims=tensor.dims, data_type=tensor.data_type, raw_data=b"0"
            )
            external_data_helper.set_external_data(moved, data.name, begin, stream.tell() - begin)
            moved.ClearField("raw_data")
    return slim
