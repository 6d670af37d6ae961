"""torch's reports of failed exports, read from texts as torch writes them."""

import pytest

from onnxproof.exporter.failures import NoTranslation, read_failure


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("No ONNX function found for <OpOverload(op='aten.foo', overload='default')>", "operator", "`aten.foo`"),
        ("Cannot find a compatible OpOverload for aten.rsub", "operator", "can't decompose"),
        ("Exporting the operator 'aten::bar' to ONNX is not supported", "operator", "`aten::bar`"),
        ("ScriptModule is not supported", "torchscript", "TorchScript already"),
        (
            "Could not guard on data-dependent expression u0 > 4 (unhinted: u0 > 4)",
            "data-dependent",
            "torch calls the condition u0 > 4",
        ),
        (
            "You marked it dynamic but torch inferred a static shape of 6 for dimension inputs['x'].shape[1].",
            "dims",
            "dim 1 of `x` should vary, and the module fixes it at 6",
        ),
        ("Constraints violated (batch)!", "dims", "can't, or not over its whole range"),
        ("\n\n  first line\nsecond", "other", "RuntimeError: first line"),
        ("", "other", "RuntimeError: no reason given"),
    ],
)  # fmt: skip
def test_the_kind_of_a_failure_is_read_from_its_text(text: str, kind: str, words: str) -> None:
    failure = read_failure(RuntimeError(text))
    assert failure.kind == kind
    assert words in failure.what


def test_an_operator_that_is_known_to_fail_needs_no_text() -> None:
    failure = read_failure(NoTranslation("aten.median.dim"))
    assert (failure.kind, failure.operator) == ("operator", "aten.median.dim")


def test_a_wrong_argument_is_a_failure_of_inputs() -> None:
    assert read_failure(TypeError("forward() takes 2 positional arguments")).kind == "inputs"


def test_the_line_is_the_innermost_of_the_users() -> None:
    text = 'File "/home/me/model.py", line 7, in forward\n    y = f(x)\nFile "/x/torch/nn.py", line 1, in f\n    g()\n'
    failure = read_failure(RuntimeError(text))
    assert (failure.file, failure.line, failure.text) == ("/home/me/model.py", 7, "y = f(x)")
    error = failure.error("Net", ["tried strict: no"])
    assert "torch can't export `Net`" in str(error)
    assert error.where == "/home/me/model.py:7"
