"""`diff` with another runtime's own file as one side: what it says where that runtime is missing, or neither side is ONNX."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import onnxproof
from onnxproof.errors import OnnxproofError
from onnxproof.options import Serving

WEIGHT = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def _onnx(folder: Path) -> Path:
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]>
    g (float[n, 4] x) => (float[n, 3] y) { y = Gemm<transB = 1>(x, weight) }""")
    model.graph.initializer.append(numpy_helper.from_array(WEIGHT, "weight"))
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"


@pytest.mark.parametrize(
    ("name", "package", "words"),
    [("net.xml", "openvino", "needs OpenVINO"), ("net.tflite", "ai_edge_litert", "needs LiteRT")],
)
@pytest.mark.parametrize("second", [True, False])
def test_a_runtime_that_is_not_installed_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    package: str,
    words: str,
    second: bool,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.interpreter", None)
    (tmp_path / name).write_text("a file")
    sides = [_onnx(tmp_path), tmp_path / name]
    if not second:
        sides.reverse()
    with pytest.raises(OnnxproofError, match=words):
        onnxproof.diff(
            *sides,
            {"x": np.ones((2, 4), np.float32)},
            budget_s=5,
            serving=Serving(isolate=False),
        )


def test_one_side_is_an_onnx_file(tmp_path: Path) -> None:
    with pytest.raises(OnnxproofError, match=r"neither `a\.xml` nor `b\.xml` is an \.onnx file"):
        onnxproof.diff("a.xml", "b.xml")
    with pytest.raises(OnnxproofError, match=r"none\.xml"):
        onnxproof.diff(_onnx(tmp_path), tmp_path / "none.xml")
