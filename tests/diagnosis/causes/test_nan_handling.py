"""The cause `nan-handling`: odd values that are treated otherwise."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_reference import FakeReference
from support.module_workbenches import file_of, node
from support.workbenches import workbench

from onnxproof.diagnosis.causes import nan_handling
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.results import Domain, Gap, Status

GAP = Gap(case="odd", group="odd", backend="ort", output="y", status=Status.COMPARED)
GUARD = [node("IsNaN", "x", output="odd"), node("Where", "odd", "zero", "x", output="clean")]
CONSTANTS = {"zero": np.array(0, np.float32), "two": np.array(2, np.float32)}


def twice(inputs: Mapping[str, Any]) -> list[Any]:
    return [inputs["x"] * 2]


def bench_of(
    folder: Path, last: Any, odd: float, domain: Domain | None, gap: Gap | None = GAP
) -> Workbench:
    """The module doubles; the file replaces NaN first, and does something."""
    inputs = {"x": np.array([1.0, odd, 3.0], np.float32)}
    file = file_of([*GUARD, last], inputs, CONSTANTS)
    bench = workbench(folder, file, twice(inputs)[0], inputs)
    reference: Any = FakeReference(twice)
    case = replace(bench.scene.case, domain=domain, about="one NaN")
    bench.scene = replace(bench.scene, reference=reference, case=case, gap=gap)
    return bench


def test_a_difference_that_goes_with_the_odd_value_is_named(tmp_path: Path) -> None:
    tried = nan_handling.test(bench_of(tmp_path, node("Mul", "clean", "two"), np.nan, Domain.NAN))
    assert isinstance(tried, Tried)
    assert tried.proven
    assert tried.after == 0.0
    assert tried.evidence == ("with finite values in place of the odd ones (one NaN) the two agree")


def test_a_difference_that_stays_with_finite_values_is_not_proven(tmp_path: Path) -> None:
    tried = nan_handling.test(bench_of(tmp_path, node("Add", "clean", "two"), np.nan, Domain.NAN))
    assert isinstance(tried, Tried)
    assert not tried.proven
    assert tried.after is not None
    # 1, 0.5 and 3 give 3, 2.5 and 5 for 2, 1 and 6: over the smaller of the two sums of squares
    assert tried.after == pytest.approx((4.25 / 40.25) ** 0.5, rel=1e-6)


@pytest.mark.parametrize(("domain", "gap"), [(None, GAP), (Domain.TIES, GAP), (Domain.NAN, None)])
def test_a_witness_of_ordinary_values_is_left_to_others(
    domain: Domain | None, gap: Gap | None, tmp_path: Path
) -> None:
    bench = bench_of(tmp_path, node("Mul", "clean", "two"), np.nan, domain, gap)
    assert nan_handling.test(bench) == "the witness holds neither NaN nor infinity"
