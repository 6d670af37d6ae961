"""ONNX's own node tests through our evaluator, in the file's precision and in float64: a wrong truth inflates the noise, and hides faults."""

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case import node as node_tests

from onnxproof.errors import OnnxproofError
from onnxproof.runtimes import reference

_DRAWS = "draws at random, and no two implementations draw alike"
_FRACTION = "the standard's example takes 0.6 of 4 pixels for a length of 2.4; PyTorch and ONNX Runtime take 2"
CANNOT_PASS = {
    "test_bernoulli": _DRAWS,
    "test_bernoulli_double": _DRAWS,
    "test_bernoulli_double_expanded": _DRAWS,
    "test_bernoulli_expanded": _DRAWS,
    "test_bernoulli_seed": _DRAWS,
    "test_bernoulli_seed_expanded": _DRAWS,
    "test_maxunpool_export_with_output_shape": "runtimes read `output_shape` in another way",
    "test_resize_downsample_scales_cubic_align_corners": _FRACTION,
    "test_resize_downsample_scales_linear_align_corners": _FRACTION,
}
CANNOT_PASS_WIDE = {
    "test_dynamicquantizelinear_expanded": "a value between two integers, which float32 decides by its rounding",
}
"""In float64 alone."""
HALF = {np.dtype(np.float16): 2.0**-9, np.dtype(ml_dtypes.bfloat16): 2.0**-6}
"""Relative error of expected values that were rounded to half precision at every step."""


@functools.cache
def _cases() -> Sequence[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [case for case in node_tests.collect_testcases(None) if case.model is not None]


def _plain(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def _difference(found: Any, wanted: Any, rtol: float) -> str:
    """What is wrong, or nothing."""
    if isinstance(wanted, list | tuple):
        parts = [_difference(f, w, rtol) for f, w in zip(found, wanted, strict=True)]
        return next(filter(None, parts), "")
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape:
        return f"shape {found.shape} instead of {wanted.shape}"
    if wanted.dtype.kind in "OUS":
        return "" if (found.astype(str) == wanted.astype(str)).all() else "other strings"
    if wanted.dtype.kind in "biu":
        return "" if (found == wanted).all() else "other integers"
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    near = np.isclose(
        found.astype(wide), wanted.astype(wide), rtol=rtol, atol=rtol / 100, equal_nan=True
    )
    return "" if near.all() else f"{int((~near).sum())} of {near.size} values differ"


def _rounding(case: Any) -> float:
    """What the dtype of the expected values allows."""
    kinds = {
        np.asarray(_plain(value)).dtype
        for _, outputs in case.data_sets
        for value in outputs
        if not isinstance(value, list | dict)
    }
    return max([case.rtol, *(HALF.get(kind, 0.0) for kind in kinds)])


@functools.cache
def _run(option: str) -> tuple[int, dict[str, str], dict[str, str]]:
    """How many agree, what is wrong, and what is refused."""
    agree, wrong, refused = 0, {}, {}
    for case in _cases():
        names = [port.name for port in case.model.graph.input]
        try:
            session = reference.open(case.model.SerializeToString(), option)
            for inputs, outputs in case.data_sets:
                found = session.run(dict(zip(names, map(_plain, inputs), strict=True)))
                differences = [
                    _difference(f, _plain(w), _rounding(case))
                    for f, w in zip(found, outputs, strict=True)
                ]
                if any(differences):
                    wrong[case.name] = next(filter(None, differences))
        except OnnxproofError as why:
            refused[case.name] = why.what
        agree += case.name not in wrong and case.name not in refused
    return agree, wrong, refused


@pytest.mark.parametrize("option", ["", "float64"])
def test_the_standards_own_node_tests(option: str) -> None:
    """All but the list; and what the list names does fail, so that it can't grow old."""
    agree, wrong, refused = _run(option)
    known = set(CANNOT_PASS)
    if option:
        known |= set(CANNOT_PASS_WIDE)
    failed = {**wrong, **refused}
    assert not {name: what for name, what in failed.items() if name not in known}
    assert known & {case.name for case in _cases()} == set(failed)
    assert agree == len(_cases()) - len(failed) > 1500
    assert len(CANNOT_PASS | CANNOT_PASS_WIDE) <= 30
