"""The cause `tie-order`: equal values in another order."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.module_workbenches import file_of, node
from support.workbenches import workbench

from onnxproof.diagnosis.causes import tie_order
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.results import Domain, Gap, Status

X = {"x": np.ones((1, 3), np.float32)}
GAP = Gap(case="ties-2", group="ties", backend="ort", output="boxes", status=Status.COMPARED)


def bench_of(folder: Path, gap: Gap | None) -> Workbench:
    bench = workbench(folder, file_of([node("Neg", "x")], X), X["x"], X)
    bench.scene = replace(bench.scene, gap=gap)
    return bench


def test_a_difference_that_goes_with_the_ties_is_named_with_its_output_and_case(
    tmp_path: Path,
) -> None:
    tried = tie_order.test(bench_of(tmp_path, replace(GAP, domain=Domain.TIES)))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.after) == (True, None)
    assert tried.evidence == (
        "the module with its ties broken by one rule gives the candidate's `boxes` on case `ties-2`"
    )


@pytest.mark.parametrize("gap", [None, GAP, replace(GAP, domain=Domain.NAN)])
def test_ties_that_do_not_explain_the_difference_are_not_blamed(
    gap: Gap | None, tmp_path: Path
) -> None:
    assert tie_order.test(bench_of(tmp_path, gap)) == "no exact ties explain it"
