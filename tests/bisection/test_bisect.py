"""The release that changed the answers, and what changed in it, planted and named."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import planted_releases

from onnxproof.bisection import words
from onnxproof.cli import main

ROOT = Path(__file__).parents[2]
RELEASES = ("9.0.0", "9.1.0", "9.2.0", "9.3.0")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """MatMul, Relu, MatMul: the fault lies in the middle."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((6, 6)).astype(np.float32), name)
        for name in ("w", "v")
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="middle"),
        helper.make_node("MatMul", ["b", "v"], ["y"], name="last"),
    ]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 6]) for name in ("x", "y")
    ]
    graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], weights)
    path = tmp_path / "net.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


def _bisect(arguments: list[str], tmp_path: Path) -> tuple[int, dict[str, Any]]:
    target = tmp_path / "result.json"
    code = main(
        ["bisect", *arguments, "--json", str(target), "--budget", "2", "--threads", "1", "--quiet"]
    )
    if not target.exists():
        return code, {}
    result = json.loads(target.read_text())
    jsonschema.validate(result, words.schema())
    return code, result


def test_the_published_schema_is_that_of_the_code() -> None:
    assert json.loads((ROOT / "docs" / "bisection.schema.json").read_text()) == words.schema()


def _plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **plans: dict[str, Any]) -> list[str]:
    cache = tmp_path / "cache"
    monkeypatch.setenv("ONNXPROOF_CACHE", str(cache))
    by_release = {release: plans.get(f"r{k}", {}) for k, release in enumerate(RELEASES)}
    planted_releases.plant(cache, by_release)
    return ["--versions", f"onnxruntime={','.join(RELEASES)}"]


def test_the_kernel_of_a_node_is_named_with_its_release(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = {"op": "Relu"}
    words = _plant(tmp_path, monkeypatch, r2=fault, r3=fault)
    code, result = _bisect([str(model), str(model), *words], tmp_path)
    assert code == 0
    (change,) = result["changes"]
    assert (change["before"], change["after"]) == ("9.1.0", "9.2.0")
    blame = change["blame"]
    assert (blame["part"], blame["name"], blame["op_type"], blame["proven"]) == (
        "kernel",
        "middle",
        "Relu",
        True,
    )
    before, after = change["standings"]
    assert before["noise_ratio"] < 12 < after["noise_ratio"]
    said = capsys.readouterr().out
    assert "onnxruntime 9.2.0 changed the answers; 9.1.0 is the last" in said
    assert "the kernel of Relu, node `middle` (proven)" in said


def test_the_optimizer_is_named_with_its_release(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = {"op": "Relu", "optimizer": "ConstantFolding"}
    words = _plant(tmp_path, monkeypatch, r1=fault, r2=fault, r3=fault)
    code, result = _bisect([str(model), str(model), *words], tmp_path)
    assert code == 0 and not result["returns"]
    (change,) = result["changes"]
    assert (change["before"], change["after"]) == ("9.0.0", "9.1.0")
    blame = change["blame"]
    assert (blame["part"], blame["name"]) == ("optimizer", "ConstantFolding")
    assert blame["proven"] and blame["level"] == "basic"


def test_ends_that_agree_are_an_error_that_says_what_to_try(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = _plant(tmp_path, monkeypatch, r1={"op": "Relu"})
    code, result = _bisect([str(model), str(model), *words], tmp_path)
    assert code == 2 and not result
    said = capsys.readouterr().err
    assert "error[ends-agree]: onnxruntime 9.0.0 and 9.3.0 answer alike" in said
    assert "`--every` tries each" in said


def test_a_release_that_refuses_the_file_is_an_answer(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses = {"refuses": True}
    words = _plant(tmp_path, monkeypatch, r0=refuses, r1=refuses)
    code, result = _bisect([str(model), str(model), *words], tmp_path)
    assert code == 0
    (change,) = result["changes"]
    assert change["after"] == "9.2.0" and change["blame"]["part"] == "refusal"
    assert "knows no such operator" in change["difference"]["words"]


def test_a_torch_that_exports_otherwise_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each release is an environment with a variable of its own, which the factory reads."""
    (tmp_path / "net.py").write_text(
        "import os\n"
        "import torch\n"
        "\n"
        "def build():\n"
        "    torch.manual_seed(0)\n"
        "    net = torch.nn.LayerNorm(8, eps=float(os.environ.get('PLANTED', '1e-5')))\n"
        "    return net.eval(), (torch.randn(2, 8) / 100,)\n",
        encoding="utf-8",
    )
    cache = tmp_path / "cache"
    monkeypatch.setenv("ONNXPROOF_CACHE", str(cache))
    planted_releases.plant_torch(cache, {"8.0.0": "1e-5", "8.1.0": "1e-5", "8.2.0": "1e-3"})
    words = [f"{tmp_path}/net.py:build", "--versions", "torch=8.0.0,8.1.0,8.2.0"]
    code, result = _bisect(words, tmp_path)
    assert code == 0
    (change,) = result["changes"]
    assert (change["before"], change["after"], change["blame"]["part"]) == (
        "8.1.0",
        "8.2.0",
        "file",
    )


def test_opsets_that_answer_alike_are_told(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = _bisect([str(model), str(model), "--opsets", "17..19"], tmp_path)
    assert code == 2
    assert "error[ends-agree]: opset 17 and 19 answer alike" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "one of `--versions` and `--opsets` is needed"),
        (["--versions", "numpy=1..2"], "error[unknown-package]"),
        (["--versions", "torch=2.9.0,2.10.0"], "each torch exports a file of its own"),
        (["--versions", "onnxruntime=9.0.0,9.1.0", "--backend", "openvino"], "error[bad-backend]"),
    ],
)
def test_words_that_make_no_sense(
    words: list[str], expected: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bisect", str(model), str(model), *words]) == 2
    assert expected in capsys.readouterr().err
