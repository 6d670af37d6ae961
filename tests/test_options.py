"""Options are the same for Python and the command line, and a slip of the pen is told."""

from dataclasses import fields
from pathlib import Path

import pytest

import onnxproof
from onnxproof.options import (
    QuantizeKeywords,
    QuantizeOptions,
    ReplayKeywords,
    ReplayOptions,
    VerifyKeywords,
    VerifyOptions,
)


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        (VerifyOptions, VerifyKeywords),
        (QuantizeOptions, QuantizeKeywords),
        (ReplayOptions, ReplayKeywords),
    ],
)
def test_the_keywords_are_the_fields(options: type, keywords: type) -> None:
    assert {item.name for item in fields(options)} == set(keywords.__annotations__)


def test_an_unknown_keyword_is_told_with_the_nearest() -> None:
    with pytest.raises(TypeError, match="`budget`; did you mean `budget_s`"):
        onnxproof.diff("a.onnx", "b.onnx", budget=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="`zzz`; known are backends, policy"):
        VerifyOptions.of({"zzz": 1})


def test_lists_become_tuples_and_none_is_the_default() -> None:
    options = VerifyOptions.of({"backends": ["ort", "reference"], "policy": None, "only": ["a"]})
    assert options.backends == ("ort", "reference") and options.only == ("a",)
    assert options.policy == onnxproof.Policy()
    chosen = QuantizeOptions.of({"cache": "folder", "recipes": [], "exclude": ["node"]})
    assert chosen.cache == Path("folder") and chosen.recipes == () and chosen.exclude == ("node",)
    assert QuantizeOptions().recipes is None
