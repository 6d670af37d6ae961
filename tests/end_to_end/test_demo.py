"""The demo does what it tells: the usual test passes both files, onnxproof only the right one."""

import json
import sys
from pathlib import Path

import jsonschema
import pytest

from onnxproof.cli import _demo_model, main
from onnxproof.errors import OnnxproofError
from onnxproof.results import Verdict

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "proof.schema.json").read_text())


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[_demo_model.Story, list[str], Path]:
    folder = tmp_path_factory.mktemp("demo")
    said: list[str] = []
    return _demo_model.run(folder, said.append), said, folder


def test_the_export_is_faithful(told: tuple[_demo_model.Story, list[str], Path]) -> None:
    assert told[0].healthy.proof.verdict is Verdict.FAITHFUL
    assert told[0].healthy.allclose
    assert told[0].accuracy > 0.9


def test_the_fault_passes_allclose_and_not_onnxproof(
    told: tuple[_demo_model.Story, list[str], Path],
) -> None:
    broken = told[0].broken
    assert broken.allclose
    assert broken.same_answers == 1.0
    assert broken.proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED)
    assert broken.proof.worst is not None
    assert broken.proof.worst.noise_ratio > 50


def test_the_proof_is_written(told: tuple[_demo_model.Story, list[str], Path]) -> None:
    document = json.loads((told[2] / "proof.json").read_text())
    jsonschema.validate(document, SCHEMA)
    assert document["verdict"] == told[0].broken.proof.verdict.value
    assert {path.name for path in told[2].iterdir()} >= {
        "digits.onnx",
        "digits.epsilon.onnx",
        "proof.json",
    }


def test_only_one_attribute_differs(told: tuple[_demo_model.Story, list[str], Path]) -> None:
    import onnx

    good, bad = (
        onnx.load(told[2] / name).graph.node for name in ("digits.onnx", "digits.epsilon.onnx")
    )
    differ = [
        (a.name, {x.name for x, y in zip(a.attribute, b.attribute, strict=True) if x != y})
        for a, b in zip(good, bad, strict=True)
        if a != b
    ]
    assert [names for _, names in differ] == [{"epsilon"}]


def test_it_says_what_it_does(told: tuple[_demo_model.Story, list[str], Path]) -> None:
    assert told[1][0].startswith("training")
    assert "epsilon 1e-06 instead of 1e-05" in told[1][-1]


def test_the_table_is_printed(
    told: tuple[_demo_model.Story, list[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(_demo_model, "run", lambda folder, say: told[0])
    assert main(["demo", "--output", str(told[2])]) == 0
    text = capfd.readouterr().out
    assert "the usual test: allclose(atol=1e-4, rtol=1e-3)" in text
    assert "FAITHFUL" in text
    assert "proof.json" in text
    page = (told[2] / "report.html").read_text(encoding="utf-8")
    assert page.count("<article ") == 2


@pytest.mark.parametrize("package", ["sklearn", "torch"])
def test_what_is_missing_is_told_with_the_pip_command(
    package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(OnnxproofError) as caught:
        _demo_model.run(tmp_path, print)
    assert str(caught.value) == (
        f"error[demo-missing]: the demo needs a package that isn't installed: {package}\n"
        "  = help: pip install 'onnxproof[torch]' scikit-learn"
    )
