"""The cases as ONNX's own test data: `test_data_set_K/input_I.pb` and `output_I.pb`, in the order of the file's ports."""

from typing import Any

import numpy as np
from onnx import numpy_helper

from onnxproof.bundle.cases import StoredCase
from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.options import Policy
from onnxproof.results import Signature
from onnxproof.runtimes.session.execution import feed

Array = np.ndarray[Any, Any]


def members(
    stored: StoredCase, folder: str, file: OnnxFile, signature: Signature
) -> dict[str, bytes]:
    """The files of one case by their names; outputs end at the first that the reference does not have."""
    content: dict[str, bytes] = {}
    fed = feed(stored.case.inputs, signature)
    for place, port in enumerate(file.inputs):
        if port.name in fed:
            content[f"{folder}/input_{place}.pb"] = _tensor(fed[port.name], port.name)
    answers = {
        info.onnx_name: output.reference
        for info, output in zip(signature.outputs, stored.outputs, strict=True)
    }
    for place, port in enumerate(file.outputs):
        if port.name not in answers:
            break
        answer = _as_file_says(answers[port.name], port.dtype)
        content[f"{folder}/output_{place}.pb"] = _tensor(answer, port.name)
    return content


def tolerances(stored: StoredCase, signature: Signature, policy: Policy) -> dict[str, float]:
    """By the file's output: the absolute tolerance at which the worst element is at the limit that the noise allows."""
    return {
        info.onnx_name: policy.worst_limit * max(output.noise.worst, 2.0 * output.noise.rms)
        for info, output in zip(signature.outputs, stored.outputs, strict=True)
        if info.onnx_name is not None
    }


def _as_file_says(answer: Array, dtype: str) -> Array:
    """The reference's answer in the dtype of the file's output; complex numbers as the pairs that exporters write."""
    if answer.dtype.kind == "c" and not dtype.startswith("complex"):
        answer = np.stack([answer.real, answer.imag], axis=-1)
    if dtype in ("unknown", str(answer.dtype)):
        return answer
    with np.errstate(over="ignore"):  # what half precision can't hold is infinite there, too
        return answer.astype(np.dtype(dtype))


def _tensor(array: Array, name: str) -> bytes:
    tensor = numpy_helper.from_array(np.asarray(array, order="C"), name)
    return bytes(tensor.SerializeToString())
