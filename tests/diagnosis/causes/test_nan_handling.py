"""The cause `nan-handling`: odd values that are treated otherwise."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.fake_reference import FakeReference
from support.module_workbenches import file_of, module_workbench, node, without_line
from support.workbenches import workbench

from onnxproof.diagnosis.causes import nan_handling
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.results import Domain, Gap, Status

GAP = Gap(case="odd", group="odd", backend="ort", output="y", status=Status.COMPARED)
GUARD = [node("IsNaN", "x", output="odd"), node("Where", "odd", "zero", "x", output="clean")]
CONSTANTS = {"zero": np.array(0, np.float32), "two": np.array(2, np.float32)}
ROWS = {"x": np.array([[1.0, np.nan, 3.0], [-2.0, 0.5, 4.0], [5.0, 6.0, -7.0]], np.float32)}


class Largest(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.amax(x, dim=1) + 1


def twice(inputs: Mapping[str, Any]) -> list[Any]:
    return [inputs["x"] * 2]


def bench_of(
    folder: Path, last: Any, odd: float, domain: Domain | None, gap: Gap | None = GAP
) -> Workbench:
    """The reference doubles, and is no module; the file replaces NaN first, and does something."""
    inputs = {"x": np.array([1.0, odd, 3.0], np.float32)}
    file = file_of([*GUARD, last], inputs, CONSTANTS)
    reference = FakeReference(twice, example=inputs)
    bench = workbench(folder, file, twice(inputs)[0], inputs, reference=reference)
    case = replace(bench.scene.case, domain=domain, about="one NaN")
    bench.scene = replace(bench.scene, case=case, gap=gap)
    return bench


def largest_bench(folder: Path, place_of_nan: float) -> Workbench:
    """The file puts a number in the place of NaN, then takes the largest of each row."""
    nodes = [
        node("IsNaN", "x", output="odd"),
        node("Where", "odd", "place", "x", output="clean"),
        node("ReduceMax", "clean", "axes", output="largest", keepdims=0),
        node("Add", "largest", "one"),
    ]
    constants = {
        "place": np.array(place_of_nan, np.float32),
        "axes": np.array([1]),
        "one": np.array(1, np.float32),
    }
    file = file_of(nodes, ROWS, constants)
    ordinary = {"x": np.nan_to_num(ROWS["x"])}
    bench = module_workbench(
        folder, Largest(), file, ROWS, example=ordinary, located={"largest": "amax"}
    )
    case = replace(bench.scene.case, domain=Domain.NAN, about="one NaN")
    bench.scene = replace(bench.scene, case=case, gap=GAP)
    return bench


def test_the_operation_that_drops_nan_is_named(tmp_path: Path) -> None:
    tried = nan_handling.test(largest_bench(tmp_path, -np.inf))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference) == (True, True)
    assert without_line(tried.evidence) == (
        "the module with `amax` with NaN dropped gives what the candidate gives"
    )
    assert tried.judgement is not None
    assert tried.judgement.passing >= 2


def test_a_number_that_is_not_dropped_is_an_observation(tmp_path: Path) -> None:
    tried = nan_handling.test(largest_bench(tmp_path, 77.0))
    assert isinstance(tried, Tried)
    assert not tried.proven
    assert tried.evidence == AGREE


AGREE = (
    "with finite values in place of the odd ones (one NaN) the two agree; "
    "which operation treats them otherwise is not shown"
)


def test_a_difference_that_goes_with_the_odd_value_is_an_observation(tmp_path: Path) -> None:
    tried = nan_handling.test(bench_of(tmp_path, node("Mul", "clean", "two"), np.nan, Domain.NAN))
    assert isinstance(tried, Tried)
    assert not tried.proven
    assert tried.evidence == AGREE


def test_a_difference_that_stays_with_finite_values_is_no_matter_of_nan(tmp_path: Path) -> None:
    tried = nan_handling.test(bench_of(tmp_path, node("Add", "clean", "two"), np.nan, Domain.NAN))
    assert isinstance(tried, str)
    assert tried.endswith(
        "with finite values in place of the odd ones (one NaN) the two differ, too"
    )


@pytest.mark.parametrize(("domain", "gap"), [(None, GAP), (Domain.TIES, GAP), (Domain.NAN, None)])
def test_a_witness_of_ordinary_values_is_left_to_others(
    domain: Domain | None, gap: Gap | None, tmp_path: Path
) -> None:
    bench = bench_of(tmp_path, node("Mul", "clean", "two"), np.nan, domain, gap)
    assert nan_handling.test(bench) == "the witness holds neither NaN nor infinity"
