"""References that are no PyTorch module: functions, estimators, and what their files get wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

import onnxproof
from onnxproof.cli import main
from onnxproof.errors import OnnxproofError
from onnxproof.reference import loaders
from onnxproof.results import NoiseKind, Verdict

WEIGHT = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
TEXT = """<ir_version: 10, opset_import: ["" : 18]>
g (float[n, 4] x) => (float[n, 3] y) { p = MatMul(x, weight) y = Tanh(p) }"""


def net(x: Any) -> Any:
    return np.tanh(x @ WEIGHT)


def narrow_net(x: Any) -> Any:
    """Answers in float32, whatever it is given."""
    return np.tanh(x.astype(np.float32) @ WEIGHT)


def _file(path: Path, factor: float = 1.0) -> Path:
    model = parser.parse_model(TEXT)
    weight = WEIGHT.copy()
    weight[0, 0] *= factor
    model.graph.initializer.append(numpy_helper.from_array(weight, "weight"))
    onnx.save(model, path)
    return path


def _classifier() -> Any:
    from sklearn.linear_model import LogisticRegression

    labels = np.array(["low", "middle", "high"])[np.digitize(X2[:, 0], [-0.5, 0.5])]
    return LogisticRegression().fit(X2, labels)


X2 = np.random.default_rng(2).normal(size=(80, 4)).astype(np.float32)


def _forest() -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(8, max_depth=5, random_state=0).fit(X2, X2[:, 0] * 2 + X2[:, 1])


def _converted(model: Any, path: Path, **options: Any) -> Path:
    from skl2onnx import to_onnx

    onnx.save(to_onnx(model, X2[:1], target_opset=18, options=options or None), path)
    return path


def _change(path: Path, op_type: str, name: str, change: Any) -> Path:
    model = onnx.load(path)
    node = next(node for node in model.graph.node if node.op_type.startswith(op_type))
    attribute = next(attribute for attribute in node.attribute if attribute.name == name)
    value = change(helper.get_attribute_value(attribute))
    node.attribute.remove(attribute)
    node.attribute.append(helper.make_attribute(name, value))
    changed = path.with_name("changed.onnx")
    onnx.save(model, changed)
    return changed


def test_a_function_of_numpy_is_its_own_truth_in_float64(tmp_path: Path) -> None:
    proof = onnxproof.verify(net, _file(tmp_path / "m.onnx"), X, budget_s=4)
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    assert {gap.noise_kind for gap in proof.gaps if gap.compared} == {NoiseKind.DOUBLE}


def test_a_function_that_answers_in_float32_is_moved_instead(tmp_path: Path) -> None:
    proof = onnxproof.verify(narrow_net, _file(tmp_path / "m.onnx"), X, budget_s=4)
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    assert NoiseKind.PERTURBED in {gap.noise_kind for gap in proof.gaps}


@pytest.mark.parametrize("function", [net, narrow_net])
def test_a_wrong_weight_is_caught_and_its_node_named(tmp_path: Path, function: Any) -> None:
    proof = onnxproof.verify(function, _file(tmp_path / "m.onnx", 1.01), X, budget_s=60)
    assert proof.verdict is Verdict.DIVERGED
    assert proof.location is not None and proof.location.nodes


def test_the_command_line_takes_a_function_by_its_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "weight.npy", WEIGHT)
    (tmp_path / "predict.py").write_text(
        "import numpy as np\nfrom pathlib import Path\n"
        "WEIGHT = np.load(Path(__file__).with_name('weight.npy'))\n"
        "def predict(x):\n    return {'y': np.tanh(x @ WEIGHT)}\n"
    )
    words = ["verify", f"{tmp_path}/predict.py:predict", str(_file(tmp_path / "m.onnx"))]
    assert main([*words, "--input", "x:float32[n,4]", "--budget", "4"]) == 0
    assert "FAITHFUL" in capsys.readouterr().out
    assert main([*words, "--budget", "4"]) == 2
    printed = capsys.readouterr()
    assert "if `predict` is the reference itself" in printed.err + printed.out


def test_an_estimator_with_a_zipmap_is_compared_class_by_class(tmp_path: Path) -> None:
    model = _classifier()
    path = _converted(model, tmp_path / "m.onnx")
    proof = onnxproof.verify(model, path, X2[:5], budget_s=6)
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    classes = {f"probabilities[{name}]" for name in ("low", "middle", "high")}
    assert {gap.output for gap in proof.gaps} == {"label", *classes}


def test_classes_in_another_order_are_proven_to_be(tmp_path: Path) -> None:
    model = _classifier()
    path = _converted(model, tmp_path / "m.onnx")
    changed = _change(path, "ZipMap", "classlabels_strings", lambda names: names[::-1])
    proof = onnxproof.verify(model, changed, X2[:5], budget_s=60)
    assert proof.verdict is Verdict.DIVERGED
    assert [(cause.code, cause.proven) for cause in proof.causes[:1]] == [("output-order", True)]
    assert proof.location is not None and proof.location.nodes[:1] == ("ZipMap",)


def test_a_forest_for_float32_is_faithful_on_its_own_splits(tmp_path: Path) -> None:
    model = _forest()
    proof = onnxproof.verify(model, _converted(model, tmp_path / "m.onnx"), X2[:5], budget_s=60)
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    assert any(gap.case.startswith("splits-") for gap in proof.gaps)


def test_branches_that_leave_the_threshold_out_are_proven_to(tmp_path: Path) -> None:
    model = _forest()
    path = _converted(model, tmp_path / "m.onnx")
    changed = _change(
        path,
        "TreeEnsemble",
        "nodes_modes",
        lambda modes: [mode.replace(b"LEQ", b"LT") for mode in modes],
    )
    proof = onnxproof.verify(model, changed, X2[:5], budget_s=60)
    assert proof.verdict is Verdict.DIVERGED
    assert proof.location is not None and "TreeEnsemble" in proof.location.nodes[0]
    assert [(cause.code, cause.proven) for cause in proof.causes[:1]] == [("comparison", True)]


def test_a_pipeline_names_the_step_that_was_changed(tmp_path: Path) -> None:
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), Ridge()).fit(X2, X2[:, 0])
    path = _converted(model, tmp_path / "m.onnx")
    changed = _change(path, "Scaler", "scale", lambda scale: [2 * scale[0], *scale[1:]])
    proof = onnxproof.verify(model, changed, X2[:5], budget_s=60)
    assert proof.location is not None and proof.location.nodes[0] == "Scaler"


def test_the_kinds_are_told_apart() -> None:
    import torch

    assert loaders.find(3) is None
    assert not loaders.is_special(net)
    assert loaders.is_special(_forest())
    assert not loaders.is_special(torch.nn.Linear(2, 2))


def test_what_is_no_reference_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OnnxproofError, match="unknown-subject"):
        onnxproof.verify(3, _file(tmp_path / "m.onnx"), X)


def test_an_estimator_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(OnnxproofError, match="is no module of PyTorch"):
        onnxproof.export(_forest(), (X2[:5],), tmp_path / "m.onnx")
