"""What a function computes on the way: the node that is wrong is named with its line, and no PyTorch is needed for it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import onnxproof
from onnxproof.reference.loaders import _numpy_steps
from onnxproof.results import Verdict

X = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
TEXT = """<ir_version: 10, opset_import: ["" : 18]>
g (float[n, 4] x) => (float[n, 4] y) {
  square = Mul(x, x)
  mean = ReduceMean<keepdims = 1>(square, axis)
  shifted = Add(mean, epsilon)
  root = Sqrt(shifted)
  y = Div(x, root)
}"""


def norm(x: Any) -> Any:
    mean = (x * x).mean(-1, keepdims=True)
    shifted = mean + x.dtype.type(1e-3)
    return x / np.sqrt(shifted)


def _file(path: Path, epsilon: float) -> Path:
    model = parser.parse_model(TEXT)
    for name, array in {"axis": np.array([-1]), "epsilon": np.float32([epsilon])}.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path


def test_the_wrong_node_of_a_numpy_function_is_named_with_its_line(tmp_path: Path) -> None:
    proof = onnxproof.verify(norm, _file(tmp_path / "m.onnx", 1e-5), X, budget_s=60)
    assert proof.verdict is Verdict.DIVERGED
    assert proof.location is not None and proof.location.nodes[0] == "shifted"
    assert proof.location.source is not None
    assert proof.location.source.text == "shifted = mean + x.dtype.type(1e-3)"


def test_steps_are_what_numpy_computed() -> None:
    def function(inputs: Any) -> Any:
        first, second = np.split(inputs["x"], 2, axis=-1)
        total = first.sum(-1)
        total += 1
        return np.concatenate([total, np.float64(second.max())[None]])

    names = [name for name, *_ in _numpy_steps.record(function, {"x": X.astype(np.float64)})]
    assert names == ["split", "split", "add", "add", "maximum", "concatenate"]


def test_a_function_that_refuses_other_arrays_has_no_steps() -> None:
    def strict(inputs: Any) -> Any:
        assert type(inputs["x"]) is np.ndarray
        return inputs["x"]

    assert _numpy_steps.record(strict, {"x": X}) == []


def test_steps_of_jax_are_its_equations() -> None:
    jax = pytest.importorskip("jax")
    from onnxproof.reference.loaders import _jax_steps

    function = jax.jit(lambda inputs: jax.numpy.tanh(inputs["x"]) * 2 + 1)
    names = [name for name, _ in _jax_steps.record(function, {"x": X})]
    assert names == ["tanh", "mul", "add"]


def test_a_fault_is_located_in_a_function_that_refuses_float64(tmp_path: Path) -> None:
    def only_float32(x: Any) -> Any:
        if x.dtype != np.float32:
            raise TypeError(x.dtype)
        return norm(x)

    path = _file(tmp_path / "m.onnx", 1e-2)
    proof = onnxproof.verify(only_float32, path, X, budget_s=60)
    assert proof.verdict is Verdict.DIVERGED
    assert proof.location is not None and proof.location.nodes


_WITHOUT = """
import sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Nothing())
import onnxproof
proof = onnxproof.diff(sys.argv[1], sys.argv[2], budget_s=30)
assert "torch" not in sys.modules
print(proof.verdict.value, *proof.location.nodes[:1], [finding.code for finding in proof.findings])
"""


def test_a_fault_is_located_without_torch(tmp_path: Path) -> None:
    right, wrong = _file(tmp_path / "a.onnx", 1e-3), _file(tmp_path / "b.onnx", 1e-5)
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, right, wrong], capture_output=True, text=True, check=False
    )
    assert done.stdout.split()[:2] == ["diverged", "shifted"], done.stdout + done.stderr
    assert done.stdout.split(maxsplit=2)[2].strip() == "[]"
