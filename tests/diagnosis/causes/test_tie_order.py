"""The cause `tie-order`: equal values in another order."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from support.fake_reference import FakeReference
from support.module_workbenches import file_of, node
from support.workbenches import without_tally, workbench

from onnxproof.diagnosis.causes import tie_order
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.results import Domain, Gap, Status

X = {"x": np.array([[1.0, 1.0, 0.5], [0.25, 3.0, 3.0]], np.float32)}
GAP = Gap(case="ties-2", group="ties", backend="ort", output="boxes", status=Status.COMPARED)
TIES = replace(GAP, domain=Domain.TIES)


class FirstLargest(FakeReference):
    """The place of the largest value in each row, by default the first of equals."""

    def __init__(self) -> None:
        super().__init__(first_place, has_truth=False, example=X)

    def ties(self, inputs: Mapping[str, Any], rule: str, *, wide: bool = False) -> list[Any]:
        if rule == "first":
            return first_place(inputs)
        return [inputs["x"].shape[1] - 1 - np.argmax(inputs["x"][:, ::-1], 1)]


def first_place(inputs: Mapping[str, Any]) -> list[Any]:
    return [np.argmax(inputs["x"], 1)]


def bench_of(folder: Path, last: Any, gap: Gap | None) -> Workbench:
    file = file_of([last], X, dtype=TensorProto.INT64)
    bench = workbench(folder, file, first_place(X)[0], X, reference=FirstLargest())
    bench.scene = replace(bench.scene, gap=gap)
    return bench


LAST_OF_EQUALS = node("ArgMax", "x", axis=1, keepdims=0, select_last_index=1)


def test_the_rule_by_which_the_candidate_breaks_ties_is_named(tmp_path: Path) -> None:
    tried = tie_order.test(bench_of(tmp_path, LAST_OF_EQUALS, TIES))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference) == (True, True)
    assert without_tally(tried.evidence) == (
        "the module with its ties broken to the last index gives what the candidate gives"
    )


def test_ties_beside_another_fault_are_an_observation_with_output_and_case(tmp_path: Path) -> None:
    smallest = node("ArgMin", "x", axis=1, keepdims=0)
    tried = tie_order.test(bench_of(tmp_path, smallest, TIES))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.error_left) == (False, None)
    assert tried.evidence == (
        "with ties broken by one rule the two agree on `boxes` of case `ties-2`"
    )


@pytest.mark.parametrize("gap", [None, GAP, replace(GAP, domain=Domain.NAN)])
def test_ties_that_do_not_explain_the_difference_are_not_blamed(
    gap: Gap | None, tmp_path: Path
) -> None:
    bench = bench_of(tmp_path, LAST_OF_EQUALS, gap)
    assert tie_order.test(bench) == "no exact ties explain it"
