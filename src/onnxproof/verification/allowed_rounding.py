"""What the accuracy levels of a file allow its kernels: the left side of a product of few bits rounded to half precision, or to 8 bits in blocks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.results import Signature
from onnxproof.runtimes import reference
from onnxproof.runtimes.evaluator.contrib.blocks import ROUNDS_TO

Array = np.ndarray[Any, Any]
_EXACT = 1
"""The level up to which a kernel computes in float32."""


class AllowedRounding:
    """Simulates the file with that rounding, where it allows any; given up after a failure."""

    def __init__(self, file: OnnxFile) -> None:
        self._file = file
        self._session: Any = None
        self._usable = "MatMulNBits" in file.op_types and any(
            _level(node) > _EXACT for node in file.model.graph.node
        )

    def run(
        self, inputs: Mapping[str, Array], signature: Signature, limit_s: float
    ) -> list[Array | None] | None:
        """The outputs in the order of the signature; None where nothing is allowed, or the evaluator refuses."""
        if not self._usable:
            return None
        try:
            if self._session is None:
                self._session = reference.open(_rounding(self._file), "float64")
                self._session.limit_s = limit_s
            outputs = self._session.run(inputs)
        except (OnnxproofError, ValueError):
            self._usable = False
            return None
        by_name = dict(zip(self._session.output_names, outputs, strict=True))
        return [by_name.get(output.onnx_name or "") for output in signature.outputs]


def _level(node: onnx.NodeProto) -> int:
    if node.op_type != "MatMulNBits":
        return 0
    levels = [attribute.i for attribute in node.attribute if attribute.name == "accuracy_level"]
    return int(max(levels, default=0))


def _rounding(file: OnnxFile) -> bytes:
    model = onnx.load(file.path)
    for node in model.graph.node:
        if _level(node) > _EXACT:
            node.attribute.append(onnx.helper.make_attribute(ROUNDS_TO, _level(node)))
    return bytes(model.SerializeToString())
