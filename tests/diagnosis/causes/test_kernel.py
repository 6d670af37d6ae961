"""The cause `kernel`: one operator of the runtime beside the standard."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from support.fake_reference import FakeReference
from support.module_workbenches import case_of, file_of, node
from support.workbenches import without_tally, workbench

from onnxproof.diagnosis.causes import kernel
from onnxproof.diagnosis.counterfactuals.workbench import ComparedCases, Tried, Workbench
from onnxproof.results import Domain, Location, Stage, Suspect

LARGE = {"x": np.array([[2**53, 1, 1, 1, 1, 1, 1, 1, -(2**53)]], np.int64)}
X = {"x": np.array([[1.0, 2.0]], np.float32)}
FRACTIONS = {"x": np.array([[0.1, 0.7, 2.3]], np.float32)}


def exact_sum(inputs: Mapping[str, Any]) -> list[Any]:
    return [inputs["x"].sum(1, keepdims=True)]


def bench_of(
    folder: Path,
    nodes: list[Any],
    inputs: Any,
    *,
    stage: Stage = Stage.RUNTIME,
    suspect: str | None = "y",
    right: Any = None,
    cases: ComparedCases | None = None,
    **options: Any,
) -> Workbench:
    """The workbench of a file that is located in one node of the runtime."""
    constants = {"axes": np.array([1]), "large": np.array(1e5, np.float32)}
    file = file_of(nodes, inputs, constants, **options)
    function = right or (lambda inputs: [np.zeros((1, 1))])
    reference = FakeReference(function, has_truth=False, example=inputs)
    bench = workbench(folder, file, function(inputs)[0], inputs, nodes=["y"], reference=reference)
    bench.cases = cases or bench.cases
    suspects: tuple[Suspect, ...] = ()
    if suspect is not None:
        suspects = (Suspect(node=suspect, op_type=nodes[-1].op_type, ratio=9.0),)
    nodes_named = tuple(name.node for name in suspects)
    location = Location(stage=stage, nodes=nodes_named, suspects=suspects, evidence="it differs")
    return Workbench(
        bench.scene,
        replace(bench.located, location=location),
        cases=bench.cases,
        policy=bench.policy,
    )


def test_a_sum_of_integers_that_the_runtime_makes_in_double_is_named(tmp_path: Path) -> None:
    nodes = [node("ReduceSum", "x", "axes")]
    others = [case_of({"x": LARGE["x"] * k}, name=f"times {k}") for k in (3, 5)]
    small = [case_of({"x": np.full((1, 9), k)}, name=f"small {k}") for k in (3, 5)]
    cases = ComparedCases(others=others, agreeing=small)
    bench = bench_of(tmp_path, nodes, LARGE, right=exact_sum, cases=cases, dtype=TensorProto.INT64)
    tried = kernel.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "")
    assert without_tally(tried.evidence) == (
        "y (ReduceSum), run by itself, gives other values than the standard for the same inputs; "
        "with the standard's values in its place the answers are right"
    )


def test_a_kernel_that_treats_nan_otherwise_is_a_matter_of_nan(tmp_path: Path) -> None:
    odd = {"x": np.array([[[1.0, np.nan, 3.0, 0.5]]], np.float32)}
    pool = node("MaxPool", "x", kernel_shape=[2], strides=[2])

    def largest(inputs: Mapping[str, Any]) -> list[Any]:
        return [inputs["x"].reshape(1, 1, 2, 2).max(3)]

    bench = bench_of(tmp_path, [pool], odd, right=largest)
    witness = replace(bench.scene.case, domain=Domain.NAN)
    bench.scene = replace(bench.scene, case=witness)
    tried = kernel.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "nan-handling")


def test_a_kernel_whose_right_values_leave_the_answers_wrong_is_not_proven(tmp_path: Path) -> None:
    nodes = [node("ReduceSum", "x", "axes")]
    tried = kernel.test(bench_of(tmp_path, nodes, LARGE, dtype=TensorProto.INT64))
    assert isinstance(tried, Tried)
    assert not tried.proven
    assert tried.evidence == (
        "y (ReduceSum), run by itself, gives other values than the standard for the same inputs"
    )


def test_digits_that_were_lost_before_a_right_node_are_a_matter_of_precision(
    tmp_path: Path,
) -> None:
    nodes = [node("Add", "x", "large", output="sum"), node("Sub", "sum", "large")]
    tried = kernel.test(bench_of(tmp_path, nodes, FRACTIONS, right=lambda inputs: [inputs["x"]]))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "precision")
    assert without_tally(tried.evidence) == (
        "y (Sub) does what the standard says with what it is given; "
        "with every operator of the file in float64 the answers are right"
    )


def test_a_kernel_before_the_located_node_is_found(tmp_path: Path) -> None:
    """ONNX Runtime's Clip makes the largest number of infinity, which locating takes for the same; what divides by it shows the fault."""
    nodes = [
        node("Clip", "x", "large", output="guarded"),
        node("Identity", "guarded", output="kept"),
        node("Div", "x", "kept"),
    ]

    def divided(inputs: Mapping[str, Any]) -> list[Any]:
        with np.errstate(invalid="ignore"):
            return [inputs["x"] / np.maximum(inputs["x"], np.float32(1e5))]

    odd = {"x": np.array([[np.inf, 2.0, 3.0]], np.float32)}
    bench = bench_of(tmp_path, nodes, odd, right=divided)
    bench.scene = replace(bench.scene, case=replace(bench.scene.case, domain=Domain.INF))
    tried = kernel.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "nan-handling")
    assert "guarded (Clip), run by itself, gives other values" in tried.evidence


def test_precision_is_not_blamed_where_the_standard_is_right_in_the_types_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "_earlier_kernel", lambda workbench: None)
    nodes = [node("Clip", "x", "large", output="guarded"), node("Div", "x", "guarded")]

    def divided(inputs: Mapping[str, Any]) -> list[Any]:
        with np.errstate(invalid="ignore"):
            return [inputs["x"] / np.maximum(inputs["x"], np.float32(1e5))]

    odd = {"x": np.array([[np.inf, 2.0, 3.0]], np.float32)}
    tried = kernel.test(bench_of(tmp_path, nodes, odd, right=divided))
    assert isinstance(tried, Tried)
    assert tried.code != "precision"
    assert "with every operator by the standard, in the types of the file" in tried.evidence


def test_a_node_that_does_what_the_standard_says_is_not_blamed(tmp_path: Path) -> None:
    tried = kernel.test(bench_of(tmp_path, [node("Exp", "x")], X))
    assert isinstance(tried, Tried)
    assert tried.code == "precision"
    assert tried.evidence == (
        "y (Exp) does what the standard says with what it is given; the digits were lost before"
    )


@pytest.mark.parametrize("stage", [Stage.EXPORT, Stage.OPTIMIZER, Stage.PRECISION])
def test_a_fault_of_another_stage_is_no_kernels(stage: Stage, tmp_path: Path) -> None:
    bench = bench_of(tmp_path, [node("Exp", "x")], X, stage=stage)
    assert kernel.test(bench) == "the graph itself is wrong, whatever runs it"


def test_without_a_suspect_or_its_values_nothing_is_proven(tmp_path: Path) -> None:
    nodes = [node("Exp", "x")]
    unnamed = kernel.test(bench_of(tmp_path, nodes, X, suspect=None))
    assert isinstance(unnamed, Tried)
    assert (unnamed.proven, unnamed.evidence) == (False, "it differs")
    inside = kernel.test(bench_of(tmp_path, nodes, X, suspect="inside a fused node"))
    assert isinstance(inside, Tried)
    assert not inside.proven
    assert inside.evidence == "inside a fused node (Exp) could not be run by itself"
