"""The cause `overflow`: a formula that leaves the range of its type."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.module_workbenches import file_of, node
from support.workbenches import without_tally, workbench

from onnxproof.diagnosis.causes import overflow
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.results import Domain, Gap, Status

GAP = Gap(case="large", group="scale", backend="ort", output="y", status=Status.COMPARED, lost=1)
LOG_OF_EXP = [node("Exp", "x", output="e"), node("Log", "e")]
SHARE = [
    node("ReduceSum", "x", "axes", output="sum"),
    node("Div", "x", "sum"),
]


def bench_of(
    folder: Path, nodes: list[Any], x: Any, truth: Any, gap: Gap | None = GAP, **case: Any
) -> Workbench:
    """The workbench of a file; its truth is an array, or `x` itself for any input."""
    inputs = {"x": np.asarray(x, np.float32)}
    file = file_of(nodes, inputs, {"axes": np.array([1])})
    right = np.asarray(truth, np.float64)
    if truth is x:
        right = file_of([node("Identity", "x")], inputs)
    bench = workbench(folder, file, right, inputs)
    witness = replace(bench.scene.case, about="times 100", **case)
    bench.scene = replace(bench.scene, gap=gap, case=witness)
    return bench


def test_an_exponential_that_overflows_is_named(tmp_path: Path) -> None:
    x = [[1.0, 2.0, 100.0]]
    tried = overflow.test(bench_of(tmp_path, LOG_OF_EXP, x, x))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "precision")
    assert without_tally(tried.evidence) == (
        "e (Exp) overflows on `times 100`; "
        "where the candidate's answers are finite, they are right; "
        "with every operator of the file in float64 the answers are right"
    )


def test_a_division_of_nothing_by_nothing_is_likely_nan_handling(tmp_path: Path) -> None:
    x, truth = [[1.0, 3.0], [0.0, 0.0]], [[0.25, 0.75], [0.0, 0.0]]
    tried = overflow.test(bench_of(tmp_path, SHARE, x, truth))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (False, "nan-handling")  # float64 gives NaN, too
    assert tried.evidence.startswith("y (Div) gives NaN or infinity for finite inputs")


def test_where_nothing_is_finite_only_a_number_that_grew_is_proof(tmp_path: Path) -> None:
    large = [[100.0]]
    grew = overflow.test(bench_of(tmp_path, LOG_OF_EXP, large, large))
    assert isinstance(grew, Tried)
    assert grew.proven
    nothing = overflow.test(bench_of(tmp_path, SHARE, [[0.0, 0.0]], [[0.0, 0.0]]))
    assert isinstance(nothing, Tried)
    assert not nothing.proven
    assert nothing.evidence.endswith("so nothing shows that this is all")


def test_a_finite_part_that_differs_is_another_fault(tmp_path: Path) -> None:
    x, truth = [[1.0, 2.0, 100.0]], [[1.0, 2.5, 100.0]]
    assert overflow.test(bench_of(tmp_path, LOG_OF_EXP, x, truth)) == (
        "the finite part of the answers differs, too"
    )


def test_answers_of_another_shape_are_another_fault(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, LOG_OF_EXP, [[1.0, 100.0]], [[1.0], [100.0]])
    assert overflow.test(bench) == "the answers have other shapes"


@pytest.mark.parametrize(
    ("gap", "case"),
    [(None, {}), (replace(GAP, lost=0), {}), (GAP, {"domain": Domain.INF})],
    ids=["no gap", "nothing lost", "odd inputs"],
)
def test_a_candidate_that_is_finite_where_the_module_is_has_not_overflowed(
    gap: Gap | None, case: dict[str, Any], tmp_path: Path
) -> None:
    bench = bench_of(tmp_path, LOG_OF_EXP, [[1.0, 100.0]], [[1.0, 100.0]], gap, **case)
    assert overflow.test(bench) == "the candidate is finite wherever the module is"
