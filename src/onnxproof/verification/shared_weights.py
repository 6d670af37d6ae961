"""The structure of a file with weights of a few bits, apart from its rounding: the module is given the file's own weights, and nothing is left to excuse.

With the same weights on both sides the two must agree within rounding noise, and where they don't, the values of the one can be followed in the other.
"""

import copy
from dataclasses import replace
from pathlib import Path

import onnx

from onnxproof.reference.subject import Subject
from onnxproof.verification import block_reading, block_weights
from onnxproof.verification.evidence import Evidence, Request
from onnxproof.verification.rounded_reference import float_weights, other_weights, replacements

_EXACT_LEVELS = (0, 1)
"""Accuracy levels of MatMulNBits that let a kernel compute in float32."""


def request_with_shared_weights(evidence: Evidence, folder: Path) -> Request | None:
    """The same question to a module that has the file's weights; None where they can't be put into it."""
    request = evidence.request
    module = request.subject.module
    if not hasattr(module, "named_parameters"):
        return None
    model = onnx.load(request.path)
    weights = block_reading.find(model)
    origins = block_weights.find_origins(weights, float_weights(evidence.reference))
    if not weights or len(origins) < len(weights):
        return None
    arrays = replacements(weights, origins, own=False)
    with other_weights(module, arrays):
        shared = copy.deepcopy(module)
    path = _in_float32(model, request.path, folder)
    subject: Subject = replace(request.subject, module=shared, origin="")
    return replace(request, subject=subject, path=path)


def _in_float32(model: onnx.ModelProto, path: Path, folder: Path) -> Path:
    """The file, or one whose products are not allowed to round their inputs."""
    rounding = [
        attribute
        for node in model.graph.node
        if node.op_type == "MatMulNBits"
        for attribute in node.attribute
        if attribute.name == "accuracy_level" and attribute.i not in _EXACT_LEVELS
    ]
    if not rounding:
        return path
    for attribute in rounding:
        attribute.i = 1
    exact = folder / path.name
    onnx.save(model, exact)
    return exact
