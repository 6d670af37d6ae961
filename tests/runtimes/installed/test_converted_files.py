"""`diff` with the own file of a runtime that is really installed as one side: OpenVINO, TensorFlow Lite."""

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import onnxproof
from onnxproof.results import Verdict

WEIGHT = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def _package(name: str) -> Any:
    """A runtime's package; missing where `make test-runtimes` should have installed it, it fails."""
    if os.environ.get("ONNXPROOF_RUNTIMES") == "required":
        return importlib.import_module(name)
    return pytest.importorskip(name)


def _onnx(folder: Path) -> Path:
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]>
    g (float[n, 4] x) => (float[n, 3] y) { y = Gemm<transB = 1>(x, weight) }""")
    model.graph.initializer.append(numpy_helper.from_array(WEIGHT, "weight"))
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"


def _openvino(folder: Path, *, half: bool) -> Path:
    openvino = _package("openvino")
    path = folder / "net.xml"
    converted = openvino.convert_model(str(_onnx(folder)))
    openvino.save_model(converted, str(path), compress_to_fp16=half)
    return path


def _tflite(folder: Path, weight: np.ndarray = WEIGHT) -> Path:
    """One fully connected layer, written by the schema's own classes."""
    schema = _package("ai_edge_litert.schema_py_generated")
    flatbuffers = _package("flatbuffers")
    model, graph = schema.ModelT(), schema.SubGraphT()
    model.version = 3
    model.buffers = [schema.BufferT(), schema.BufferT()]
    model.buffers[1].data = np.frombuffer(weight.tobytes(), np.uint8)
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.FULLY_CONNECTED
    model.operatorCodes = [code]
    graph.tensors = []
    for name, shape, buffer in (("x", [1, 4], 0), ("weight", [3, 4], 1), ("y", [1, 3], 0)):
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = name, shape, buffer
        tensor.type = schema.TensorType.FLOAT32
        if buffer == 0:
            tensor.shapeSignature = [-1, shape[1]]
        graph.tensors.append(tensor)
    operator = schema.OperatorT()
    operator.inputs, operator.outputs = [0, 1, -1], [2]
    operator.builtinOptionsType = schema.BuiltinOptions.FullyConnectedOptions
    operator.builtinOptions = schema.FullyConnectedOptionsT()
    graph.operators, graph.inputs, graph.outputs = [operator], [0], [2]
    model.subgraphs = [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path = folder / "net.tflite"
    path.write_bytes(bytes(builder.Output()))
    return path


@pytest.mark.parametrize(("half", "verdict"), [(False, Verdict.FAITHFUL), (True, Verdict.DIVERGED)])
def test_a_file_of_openvino_is_the_second_side(
    tmp_path: Path, half: bool, verdict: Verdict
) -> None:
    path = _openvino(tmp_path, half=half)
    proof = onnxproof.diff(tmp_path / "net.onnx", path, budget_s=10)
    assert proof.verdict is verdict, proof.sentence()
    assert proof.candidate == str(path)


@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize(("error", "verdict"), [(0.0, Verdict.FAITHFUL), (0.01, Verdict.DIVERGED)])
def test_a_file_of_tensorflow_lite_is_either_side(
    tmp_path: Path, second: bool, error: float, verdict: Verdict
) -> None:
    sides = [_onnx(tmp_path), _tflite(tmp_path, (WEIGHT * (1 + error)).astype(np.float32))]
    if not second:
        sides.reverse()
    example = {"x": np.ones((2, 4), np.float32)}
    proof = onnxproof.diff(*sides, example, budget_s=10, explain=False)
    assert proof.verdict is verdict, proof.sentence()
