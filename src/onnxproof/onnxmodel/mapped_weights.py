"""A graph whose large weights stay in the file beside it: a copy of the graph is small, and whoever reads a weight maps it.

ONNX lets a tensor name a file by a path from the model's folder. A graph in memory has no folder, so each such tensor carries
it in its `metadata_props`. `to_array` reads by it; `ort.open_model` and `large_models.save` know it, too.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import external_data_helper, numpy_helper

Array = np.ndarray[Any, Any]
LARGE = 64 << 20
"""Bytes of external data from which on it is left where it is. Not measured."""
_SMALL = 1 << 16
"""Bytes of a weight that is read anyway. Not measured."""
_FOLDER = "onnxproof.folder"


def load(path: Path) -> onnx.ModelProto:
    """A file; where its external data is large, the initializers stay there."""
    model = onnx.load(path, load_external_data=False)
    external = [tensor for tensor in model.graph.initializer if _is_external(tensor)]
    if sum(_expected_bytes(tensor) for tensor in external) >= LARGE:
        for tensor in external:
            if _expected_bytes(tensor) > _SMALL and _is_mappable(tensor, path.parent):
                tensor.metadata_props.add(key=_FOLDER, value=str(path.parent.absolute()))
                tensor.data_location = onnx.TensorProto.DEFAULT  # so that it is not read below
    external_data_helper.load_external_data_for_model(model, str(path.parent))
    for tensor in model.graph.initializer:
        if _folder(tensor) is not None:
            tensor.data_location = onnx.TensorProto.EXTERNAL
    return model


def stays_beside(path: Path) -> bool:
    """Whether `load` leaves large weights of this file where they are."""
    model = onnx.load(path, load_external_data=False)
    return sum(map(_expected_bytes, filter(_is_external, model.graph.initializer))) >= LARGE


def to_array(tensor: onnx.TensorProto) -> Array:
    """The numbers of a tensor, mapped where they stay in a file."""
    folder = _folder(tensor)
    if folder is None:
        return numpy_helper.to_array(tensor)
    facts = external_data_helper.ExternalDataInfo(tensor)
    mapped = np.memmap(
        folder / facts.location,
        dtype=onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type),
        mode="r",
        offset=facts.offset or 0,
        shape=tuple(tensor.dims),
    )
    return mapped.view(np.ndarray)


def folder_of(model: onnx.ModelProto) -> Path | None:
    """Where the weights of a graph lie that are not in it; None where there are none."""
    folders = (_folder(tensor) for tensor in model.graph.initializer)
    return next((folder for folder in folders if folder is not None), None)


def with_weights_inside(model: onnx.ModelProto, most_bytes: int) -> onnx.ModelProto:
    """A copy that has its weights in itself; the model as it is where it has them already, or where they are more than this."""
    mapped = [tensor for tensor in model.graph.initializer if is_mapped(tensor)]
    if not mapped or sum(map(_expected_bytes, mapped)) >= most_bytes:
        return model
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    for tensor in whole.graph.initializer:
        if is_mapped(tensor):
            tensor.CopyFrom(numpy_helper.from_array(to_array(tensor), tensor.name))
    return whole


def is_mapped(tensor: onnx.TensorProto) -> bool:
    """Whether its numbers stay in a file."""
    return _folder(tensor) is not None


def _folder(tensor: onnx.TensorProto) -> Path | None:
    for entry in tensor.metadata_props:
        if entry.key == _FOLDER:
            return Path(entry.value)
    return None


def _is_external(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def _expected_bytes(tensor: onnx.TensorProto) -> int:
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    return int(np.prod(tensor.dims, dtype=np.int64)) * dtype.itemsize


def _is_mappable(tensor: onnx.TensorProto, folder: Path) -> bool:
    """Whether the file has one element after the other: not in fewer than 8 bits, and not cut short."""
    facts = external_data_helper.ExternalDataInfo(tensor)
    length = facts.length or _expected_bytes(tensor)
    file = folder / facts.location
    if length != _expected_bytes(tensor) or not file.is_file() or file.is_symlink():
        return False
    return bool((facts.offset or 0) + length <= file.stat().st_size)
