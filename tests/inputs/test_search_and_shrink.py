"""A search that climbs towards disagreement, and the smaller case that is shown: on arrays that are written by hand."""

from typing import Any

import numpy as np
import pytest

from onnxproof.inputs.search import climb, mutate, origin, rebuild
from onnxproof.inputs.shrink import shrink
from onnxproof.results import Case, InputInfo, OutputInfo, Signature

Array = np.ndarray[Any, Any]
X = np.arange(24, dtype=np.float32).reshape(6, 4)


def case(array: Array = X) -> Case:
    return Case(
        name="start", group="ordinary", about="", inputs={"x": array}, sizes={"n": len(array)}
    )


def signature(*leading: str | int) -> Signature:
    inputs = tuple(
        InputInfo(name=f"x{place}", dtype="float32", shape=(6, 4), dims=(dim, 4), onnx_name=None)
        for place, dim in enumerate(leading)
    )
    return Signature(inputs=inputs, outputs=(OutputInfo(name="y", dtype="float32", shape=(6,)),))


def test_a_case_is_rebuilt_from_its_name() -> None:
    last = mutate(mutate(case(), 3, seed=5), 17, seed=5)
    assert last.name == "start + search-3 + search-17" and origin(last.name) == "start"
    assert np.array_equal(rebuild(case(), last.name, seed=5).inputs["x"], last.inputs["x"])


@pytest.mark.parametrize("dtype", ["int64", "bool", "uint8"])
def test_integers_and_masks_are_permuted_along_their_rows(dtype: str) -> None:
    array = (X % 5).astype(dtype)
    mutated = mutate(case(array), 0, seed=0).inputs["x"]
    assert mutated.dtype == dtype and np.array_equal(np.sort(mutated), np.sort(array))


def test_the_search_goes_on_from_the_best_case() -> None:
    walk = climb([(0.0, case())], seed=0)
    best = next(walk)
    following = walk.send(1.0)
    assert following.name.startswith(f"{best.name} + search-")
    assert origin(walk.send(0.5).name) == "start"


def test_one_row_and_rounder_numbers_are_shown_where_they_are_as_bad() -> None:
    smaller = shrink(case(X + 0.123), signature("n"), lambda tried: (tried.inputs["x"] > 22).any())
    assert smaller.inputs["x"].shape == (1, 4) and smaller.sizes == {"n": 1}
    assert smaller.inputs["x"].tolist() == [[20.0, 21.0, 22.0, 23.0]]


def test_rows_stay_where_inputs_share_no_open_leading_dim() -> None:
    for leading in (("n", "m"), (6,)):
        kept = shrink(case(), signature(*leading), lambda tried: len(tried.inputs["x"]) == 6)
        assert len(kept.inputs["x"]) == 6


def test_what_nothing_smaller_shows_is_kept() -> None:
    assert shrink(case(), signature("n"), lambda tried: False).inputs["x"] is X
