"""Operators of other domains: Python functions for the evaluator, onnxruntime-extensions, and what is refused."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

import onnxproof
from onnxproof.errors import OnnxproofError
from onnxproof.options import Serving
from onnxproof.results import Verdict
from onnxproof.runtimes.session import ort_operators

TEXT = """<ir_version: 10, opset_import: ["" : 18, "my.domain" : 1]>
g (float[n, 3] x) => (float[n, 3] y) { t = my.domain.Times<by = 2.0>(x) y = Tanh(t) }"""
X = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)


def _file(folder: Path) -> Path:
    onnx.save(parser.parse_model(TEXT), folder / "m.onnx")
    return folder / "m.onnx"


def _operators(folder: Path, source: str) -> Serving:
    (folder / "operators.py").write_text(source)
    return Serving(ops=(str(folder / "operators.py"),))


@pytest.mark.parametrize(("factor", "verdict"), [("by", "faithful"), ("3", "diverged")])
def test_a_python_function_is_the_operator_of_the_evaluator(
    tmp_path: Path, factor: str, verdict: str
) -> None:
    source = f'def times(x, by=1.0):\n    return x * {factor}\nOPERATORS = {{"my.domain::Times": times}}\n'
    proof = onnxproof.verify(
        lambda x: np.tanh(2 * x),
        _file(tmp_path),
        {"x": X},
        backends=("reference",),
        serving=_operators(tmp_path, source),
        budget_s=4,
        explain=False,
    )
    assert proof.verdict == verdict, proof.sentence()


def test_a_file_without_operators_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OnnxproofError, match="defines no `OPERATORS`"):
        onnxproof.verify(
            lambda x: x,
            _file(tmp_path),
            {"x": X},
            backends=("reference",),
            serving=_operators(tmp_path, "nothing = 1\n"),
        )


@pytest.mark.parametrize(
    ("name", "words"), [("none.so", "no library of operators"), ("bad.so", "can't take operators")]
)
def test_a_library_that_is_none_is_an_error(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "bad.so").write_text("no library")
    serving = Serving(ops=(str(tmp_path / name),))
    with pytest.raises(OnnxproofError, match=words):
        onnxproof.verify(lambda x: x, _file(tmp_path), {"x": X}, serving=serving)


def _upper(x: Any) -> Any:
    return {"y": np.array([text.upper() for text in x])}


def _capitalized(x: Any) -> Any:
    return {"y": np.array([text.capitalize() for text in x])}


@pytest.mark.parametrize(
    ("function", "verdict"), [(_upper, Verdict.FAITHFUL), (_capitalized, Verdict.DIVERGED)]
)
def test_a_model_of_onnxruntime_extensions_takes_strings(
    tmp_path: Path, function: Any, verdict: Verdict
) -> None:
    pytest.importorskip("onnxruntime_extensions")
    ports = [helper.make_tensor_value_info(name, TensorProto.STRING, ["n"]) for name in "xy"]
    node = helper.make_node("StringUpper", ["x"], ["y"], domain="ai.onnx.contrib")
    graph = helper.make_graph([node], "g", ports[:1], ports[1:])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.contrib", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), tmp_path / "m.onnx")
    example = {"x": np.array(["setosa", "rose"])}
    proof = onnxproof.verify(
        function, tmp_path / "m.onnx", example, budget_s=6, explain=False, only=("example",)
    )
    assert proof.verdict is verdict, proof.sentence()


VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[MASK]",
    "[CLS]",
    "[SEP]",
    "the",
    "cat",
    "sat",
    "dog",
    "ran",
    "##s",
    ".",
]
TABLE = np.random.default_rng(1).normal(size=(len(VOCABULARY), 4)).astype(np.float32)


def _tokenizer_file(folder: Path, table: Any = TABLE) -> Path:
    """Text in, the mean of its tokens' embeddings out."""
    nodes = [
        helper.make_node(
            "BertTokenizer",
            ["text"],
            ["ids", "types", "mask"],
            domain="ai.onnx.contrib",
            vocab_file="\n".join(VOCABULARY).encode(),
            do_lower_case=1,
            strip_accents=1,
        ),
        helper.make_node("Gather", ["table", "ids"], ["vectors"]),
        helper.make_node("ReduceMean", ["vectors", "axis"], ["y"], keepdims=0),
    ]
    weights = [
        onnx.numpy_helper.from_array(table, "table"),
        onnx.numpy_helper.from_array(np.array([0]), "axis"),
    ]
    text = helper.make_tensor_value_info("text", TensorProto.STRING, [1])
    answer = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph(nodes, "g", [text], [answer], weights)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.contrib", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    onnx.save(model, folder / "tokenizer.onnx")
    return folder / "tokenizer.onnx"


def _embed(text: Any) -> Any:
    tokens = ["[CLS]"]
    for word in re.findall(r"\w+|[^\w\s]", str(text[0]).lower()):
        parts = [word[:-1], "##s"] if word.endswith("s") else [word]
        tokens += parts if set(parts) <= set(VOCABULARY) else ["[UNK]"]
    places = [VOCABULARY.index(token) for token in [*tokens, "[SEP]"]]
    return {"y": TABLE.astype(np.float64)[places].mean(0).astype(np.float32)}


def _embed_without_lower_case(text: Any) -> Any:
    return _embed(np.char.replace(text, "The", "[X]"))


@pytest.mark.parametrize(
    ("function", "verdict"),
    [(_embed, Verdict.FAITHFUL), (_embed_without_lower_case, Verdict.DIVERGED)],
)
def test_a_model_with_a_tokenizer_inside_is_verified_from_its_text(
    tmp_path: Path, function: Any, verdict: Verdict
) -> None:
    pytest.importorskip("onnxruntime_extensions")
    example = {"text": np.array(["The cats sat."])}
    proof = onnxproof.verify(
        function, _tokenizer_file(tmp_path), example, budget_s=10, explain=False
    )
    assert proof.verdict is verdict, proof.sentence()


@pytest.mark.parametrize("found", [False, True])
def test_a_library_of_operators_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    """The library of onnxruntime-extensions, given by its path: where it is not found by itself, and where it is."""
    extensions = pytest.importorskip("onnxruntime_extensions")
    library = extensions.get_library_path()
    path, example = _tokenizer_file(tmp_path), {"text": np.array(["The cats sat."])}
    if not found:
        monkeypatch.setattr(ort_operators, "_extensions_library", list)
        with pytest.raises(OnnxproofError, match="BertTokenizer"):
            onnxproof.verify(_embed, path, example, budget_s=4, only=("example",))
    proof = onnxproof.verify(
        _embed, path, example, budget_s=4, only=("example",), serving=Serving(ops=(library,))
    )
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()


LOCAL = """<ir_version: 10, opset_import: ["" : 18, "my.functions" : 1]>
g (float[n, 3] x) => (float[n, 3] y) { y = my.functions.Twice(x) }
<domain: "my.functions", opset_import: ["" : 18]>
Twice (a) => (b) { c = Add(a, a) b = Tanh(c) }"""


@pytest.mark.parametrize("backend", ["ort", "reference"])
@pytest.mark.parametrize(("factor", "verdict"), [(2, Verdict.FAITHFUL), (3, Verdict.DIVERGED)])
def test_a_local_function_of_another_domain_needs_no_operators(
    tmp_path: Path, backend: str, factor: int, verdict: Verdict
) -> None:
    onnx.save(parser.parse_model(LOCAL), tmp_path / "m.onnx")
    proof = onnxproof.verify(
        lambda x: np.tanh(x * x.dtype.type(factor)),
        tmp_path / "m.onnx",
        {"x": X},
        backends=(backend,),
        budget_s=5,
        explain=False,
        only=("example", "ordinary-0"),
    )
    assert proof.verdict is verdict, proof.sentence()
