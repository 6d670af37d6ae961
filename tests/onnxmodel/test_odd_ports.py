"""Files whose inputs or outputs can't be compared: each is an error with its own code, in both verbs and from the command line."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, parser

import onnxproof
from onnxproof.cli import main
from onnxproof.errors import ModelError, OnnxproofError
from onnxproof.results import Verdict

HEAD = '<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]>\n'
TEXTS: dict[str, tuple[str, str, str]] = {
    "sparse": (
        "g (sparse_tensor(float[2,3]) x) => (float[2,3] y) { y = Neg(x) }",
        "not-a-tensor",
        "the input `x` is a sparse tensor",
    ),
    "no output": ("g (float[2,3] x) => () { y = Neg(x) }", "no-output", "the file has no output"),
}
PORTS: dict[str, tuple[str, set[str]]] = {
    "string in": ("g (string[2] x) => (string[2] y) { y = Identity(x) }", {"y"}),
    "string out": ("g (float[2,3] x) => (string[2,3] y) { y = Cast<to = 8>(x) }", {"y"}),
    "string beside": (
        "g (string[2] s, float[2,3] x) => (float[2,3] y, string[2] t) { y = Neg(x) t = Identity(s) }",
        {"y", "t"},
    ),
    "sequence in": (
        "g (seq(float[2]) x) => (float[2] y) { i = Constant<value = int64 {0}>() y = SequenceAt(x, i) }",
        {"y"},
    ),
    "sequence out": (
        "g (float[2,3] x) => (seq(float[2,3]) y) { z = Neg(x) y = SequenceConstruct(x, z) }",
        {"y[0]", "y[1]", "len(y)"},
    ),
    "optional in": (
        "g (optional(float[2,3]) x) => (float[2,3] y) { y = OptionalGetElement(x) }",
        {"y"},
    ),
    "optional out": ("g (float[2,3] x) => (optional(float[2,3]) y) { y = Optional(x) }", {"y"}),
    "map": (
        "g (float[2,3] x) => (seq(map(int64, float)) y) { y = ai.onnx.ml.ZipMap<classlabels_int64s = [0, 1, 2]>(x) }",
        {"y[0]", "y[1]", "y[2]"},
    ),
    "float8 in": ("g (float8e4m3fn[2,3] x) => (float[2,3] y) { y = Cast<to = 1>(x) }", {"y"}),
    "float8 out": ("g (float[2,3] x) => (float8e4m3fn[2,3] y) { y = Cast<to = 17>(x) }", {"y"}),
}
DIMS: dict[str, tuple[list[int | str], str, str]] = {
    "-1 first": ([-1, 3], "negative-dim", "the input `x` has a dim of -1"),
    "-7 last": ([2, -7], "negative-dim", "the input `x` has a dim of -7"),
    "0 last": ([2, 0], "empty-input", "`x` has a dim of 0: nothing can be given to this file"),
    "0 first": ([0, 3], "empty-input", "`x` has a dim of 0"),
    "0 beside an open one": (["batch", 0], "empty-input", "`x` has a dim of 0"),
}


class Negative(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -x


def _neg(path: Path, given: list[int | str], returned: list[int | str]) -> Path:
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, given),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, returned),
    ]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", ports[:1], ports[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path
    )
    return path


def _assert_refused(path: Path, code: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelError, match=f"error\\[{code}\\]: .*{words}") as caught:
        onnxproof.diff(path, path, budget_s=2)
    assert caught.value.where == str(path)
    assert caught.value.help
    with pytest.raises(ModelError, match=f"error\\[{code}\\]: .*{words}"):
        onnxproof.verify(Negative(), path, (torch.ones(2, 3),), budget_s=2)
    assert main(["diff", str(path), str(path), "--budget", "2"]) == 2
    printed = capsys.readouterr()
    assert f"error[{code}]" in printed.err + printed.out
    assert "internal" not in printed.err + printed.out


@pytest.mark.parametrize("kind", TEXTS)
def test_what_can_not_be_compared_is_an_error(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, code, words = TEXTS[kind]
    onnx.save(parser.parse_model(HEAD + text), tmp_path / "m.onnx")
    _assert_refused(tmp_path / "m.onnx", code, words, capsys)


@pytest.mark.parametrize("kind", PORTS)
def test_what_is_no_tensor_is_compared_by_its_parts(tmp_path: Path, kind: str) -> None:
    text, outputs = PORTS[kind]
    onnx.save(parser.parse_model(HEAD + text), tmp_path / "m.onnx")
    proof = onnxproof.diff(tmp_path / "m.onnx", tmp_path / "m.onnx", budget_s=2, explain=False)
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    assert {gap.output for gap in proof.gaps} == outputs


@pytest.mark.parametrize(
    ("kind", "was", "becomes", "output"),
    [
        ("sequence out", "SequenceConstruct(x, z)", "SequenceConstruct(z, x)", "y[0]"),
        ("sequence out", "SequenceConstruct(x, z)", "SequenceConstruct(x, z, z)", "len(y)"),
        ("map", "[0, 1, 2]", "[1, 0, 2]", "y[0]"),
        ("string beside", "Identity(s)", "StringConcat(s, s)", "t"),
    ],
)
def test_a_part_that_differs_is_named(
    tmp_path: Path, kind: str, was: str, becomes: str, output: str
) -> None:
    text, _ = PORTS[kind]
    for name, content in (("a.onnx", text), ("b.onnx", text.replace(was, becomes))):
        onnx.save(parser.parse_model(HEAD + content), tmp_path / name)
    proof = onnxproof.diff(tmp_path / "a.onnx", tmp_path / "b.onnx", budget_s=3, explain=False)
    assert proof.verdict is Verdict.DIVERGED
    assert output in {gap.output for gap in proof.gaps if gap.mismatches or gap.noise_ratio > 12}


def test_strings_that_differ_are_told(tmp_path: Path) -> None:
    text, _ = PORTS["string in"]
    onnx.save(parser.parse_model(HEAD + text), tmp_path / "a.onnx")
    changed = text.replace("Identity(x)", "StringConcat(x, x)")
    onnx.save(parser.parse_model(HEAD + changed), tmp_path / "b.onnx")
    example = {"x": np.array(["setosa", "ROSE"])}
    proof = onnxproof.diff(
        tmp_path / "a.onnx", tmp_path / "b.onnx", example, budget_s=3, explain=False
    )
    assert (
        "strings differ: the reference says 'setosa' and the file 'setosasetosa'"
        in proof.sentence()
    )


@pytest.mark.parametrize("kind", DIMS)
def test_dims_that_hold_nothing_are_an_error(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dims, code, words = DIMS[kind]
    _assert_refused(_neg(tmp_path / "m.onnx", dims, dims), code, words, capsys)


def test_a_negative_dim_of_an_output_is_no_matter(tmp_path: Path) -> None:
    """Runtimes compute the shapes of outputs, and so do we."""
    path = _neg(tmp_path / "m.onnx", [2, 3], [-1, 3])
    assert (
        onnxproof.verify(Negative(), path, (torch.ones(2, 3),), budget_s=2, explain=False).verdict
        is Verdict.FAITHFUL
    )


def test_an_empty_input_beside_others_is_allowed(tmp_path: Path) -> None:
    """The regions of a Resize that has none, given as an input."""
    text = 'g (float[2,3] x, float[0] roi) => (float[4,6] y) { s = Constant<value = float[2] {2.0, 2.0}>() y = Resize<mode = "nearest">(x, roi, s) }'
    onnx.save(parser.parse_model(HEAD + text), tmp_path / "m.onnx")
    proof = onnxproof.diff(tmp_path / "m.onnx", tmp_path / "m.onnx", budget_s=2, explain=False)
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()


@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (0, 0)])
def test_an_empty_example_proves_nothing_and_raises_nothing(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    path = _neg(tmp_path / "m.onnx", ["rows", "columns"], ["rows", "columns"])
    proof = onnxproof.verify(Negative(), path, (torch.ones(shape),), budget_s=3, explain=False)
    assert proof.verdict is (
        Verdict.FAITHFUL if any(gap.compared for gap in proof.gaps) else Verdict.VACUOUS
    ), proof.sentence()


def test_strings_as_an_example_are_an_error(tmp_path: Path) -> None:
    path = _neg(tmp_path / "m.onnx", ["rows", "columns"], ["rows", "columns"])
    with pytest.raises(OnnxproofError) as caught:
        onnxproof.diff(path, path, (np.array([["a", "b"]]),), budget_s=2)
    assert caught.value.code != "internal"
