"""The reference with other weights: its own ones rounded to as few bits as the file keeps, or the file's in their place."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.reference.graph import GraphReference
from onnxproof.reference.protocol import Reference
from onnxproof.runtimes import Session, ort
from onnxproof.verification import block_reading, block_weights
from onnxproof.verification.block_weights import BlockWeight, Origin

Array = np.ndarray[Any, Any]
_EQUAL = 1e-5
"""Relative rms up to which the reference's weights are the file's own: float32 leaves 6e-8, half precision scales 5e-4."""


class RoundedReference:
    """Runs the reference with every weight rounded that the file keeps in a few bits."""

    def __init__(self, reference: Reference, file: OnnxFile) -> None:
        self._reference = reference
        self._weights = block_reading.find(onnx.load(file.path))
        self._origins = block_weights.find_origins(self._weights, float_weights(reference))
        self._session: Session | None = None

    @property
    def complete(self) -> bool:
        """Whether every such weight of the file has its own in the reference."""
        return bool(self._weights) and len(self._origins) == len(self._weights)

    @property
    def has_own_weights(self) -> bool:
        """Whether the reference has the very weights of the file: it was rounded before."""
        return self.complete and all(
            block_weights.relative_difference(weight.floats[origin.rows], origin.floats) <= _EQUAL
            for weight in self._weights
            for origin in self._origins[weight.name]
        )

    def run(self, inputs: Mapping[str, Array]) -> list[Array] | None:
        """The outputs; None where a weight is not found, or the reference can't be run so."""
        if not self.complete:
            return None
        rounded = replacements(self._weights, self._origins)
        session = self._reference.session
        try:
            if session is not None:
                with other_weights(session.module, rounded):
                    return self._reference.run(inputs)
            return self._run_graph(inputs, rounded)
        except OnnxproofError:
            return None

    def _run_graph(
        self, inputs: Mapping[str, Array], rounded: Mapping[str, Array]
    ) -> list[Array] | None:
        if not isinstance(self._reference, GraphReference):
            return None
        if self._session is None:
            model = onnx.load(self._reference.path)
            for tensor in model.graph.initializer:
                if tensor.name in rounded:
                    dtype = helper_dtype(tensor)
                    array = rounded[tensor.name].astype(dtype)
                    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
            self._session = ort.open_model(model, "disabled")
        return [array for array in self._session.run(inputs) if array is not None]


def helper_dtype(tensor: onnx.TensorProto) -> Any:
    """The numpy type of a tensor."""
    return onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)


def replacements(
    weights: list[BlockWeight], origins: Mapping[str, list[Origin]], *, own: bool = True
) -> dict[str, Array]:
    """The reference's weights by name: its own ones rounded, or (`own` is false) the numbers that the file has for them."""
    made = {}
    for weight in weights:
        for origin in origins.get(weight.name, ()):
            values = _rounded(weight, origin) if own else weight.floats[origin.rows]
            made[origin.name] = np.ascontiguousarray(values.T if origin.turned else values)
    return made


def _rounded(weight: BlockWeight, origin: Origin) -> Array:
    return weight.rounded(origin.floats)


def float_weights(reference: Reference) -> dict[str, Array]:
    """The reference's matrices by name."""
    if reference.session is not None:
        module = reference.session.module
        if not hasattr(module, "named_parameters"):
            return {}  # a function has no weights
        return {
            name: tensor.detach().float().cpu().numpy()
            for name, tensor in module.named_parameters()
            if tensor.dim() == 2 and tensor.is_floating_point()
        }
    if isinstance(reference, GraphReference):
        tensors = onnx.load(reference.path).graph.initializer
        floats = [t for t in tensors if len(t.dims) == 2 and t.data_type == onnx.TensorProto.FLOAT]
        return {tensor.name: numpy_helper.to_array(tensor) for tensor in floats}
    return {}


@contextmanager
def other_weights(module: Any, arrays: Mapping[str, Array]) -> Iterator[None]:
    """The module with these parameters in place of its own, which come back afterwards."""
    import torch

    tensors = {name: tensor for name, tensor in module.named_parameters() if name in arrays}
    kept = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    try:
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(torch.from_numpy(np.array(arrays[name])))
        yield
    finally:
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(kept[name])
