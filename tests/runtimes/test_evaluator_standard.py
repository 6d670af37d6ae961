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

UNSUPPORTED = {
    "test_scan_sum": "the Scan of opset 8, with its batch axis",
    "test_scatter_without_axis": "Scatter was replaced in opset 11",
    "test_scatter_with_axis": "Scatter was replaced in opset 11",
    "test_maxunpool_export_with_output_shape": "the standard and runtimes read `output_shape` in different ways",
}
"""Refused with an error in both precisions."""
UNSUPPORTED_WIDE = ("test_bitcast_", "test_bernoulli")
"""Refused in float64 alone: the bits of a float32 are not those of a float64, and random draws have no truth."""
RANDOM = "test_bernoulli"
FRACTIONAL = {
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
}
"""The standard's example takes 0.6 of 4 pixels for a length of 2.4; PyTorch and ONNX Runtime take 2 pixels, and so do we."""
TIES = {
    "test_dynamicquantizelinear",
    "test_dynamicquantizelinear_expanded",
    "test_dynamicquantizelinear_max_adjusted",
    "test_dynamicquantizelinear_min_adjusted",
}
"""Values that lie between two integers: float32 decides by its rounding, and float64 by the rule for ties."""
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
    agree, wrong, refused = _run(option)
    known = FRACTIONAL | (TIES if option else {name for name in wrong if name.startswith(RANDOM)})
    assert not {name: what for name, what in wrong.items() if name not in known}
    listed = tuple(UNSUPPORTED) + (UNSUPPORTED_WIDE if option else ())
    assert not {name: why for name, why in refused.items() if not name.startswith(listed)}
    assert agree > 0.95 * len(_cases()) > 500


def test_the_lists_name_nothing_that_works() -> None:
    _, wrong, refused = _run("")
    assert set(UNSUPPORTED) & {case.name for case in _cases()} <= set(refused)
    assert FRACTIONAL & {case.name for case in _cases()} <= set(wrong)
