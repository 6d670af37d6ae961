"""The standard's evaluation of a file, whole in float64 or for some nodes in the place of the runtime's kernels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto
from support.fake_reference import FakeReference
from support.module_workbenches import case_of, file_of, node
from support.workbenches import workbench

from onnxproof.diagnosis.counterfactuals import standard_evaluation
from onnxproof.diagnosis.counterfactuals.workbench import Workbench
from onnxproof.diagnosis.trial_cases import TrialCase, same_scene

X = {"x": np.array([[0.1, 0.7, 2.3]], np.float32)}
OTHER = {"x": np.array([[-3.3, 0.2, 1.9], [7.1, 0.3, -0.9]], np.float32)}
LARGE = {"x": np.array([[2**53, 1, 1, 1, 1, 1, 1, 1, -(2**53)]], np.int64)}
CANCEL = [node("Add", "x", "large", output="sum"), node("Sub", "sum", "large")]
CONSTANTS = {"large": np.array(1e5, np.float32), "axes": np.array([1])}


def bench_of(
    folder: Path, nodes: list[Any], function: Any, inputs: Mapping[str, Any], **options: Any
) -> Workbench:
    file = file_of(nodes, inputs, CONSTANTS, **options)
    reference = FakeReference(function, has_truth=False, example=inputs)
    return workbench(folder, file, function(inputs)[0], inputs, nodes=["y"], reference=reference)


def answered(bench: Workbench, inputs: Mapping[str, Any]) -> TrialCase:
    scene = same_scene(bench.scene, case_of(inputs))
    assert scene is not None
    outputs = bench.run(inputs=inputs)
    return TrialCase(scene=scene, outputs=outputs, before=scene.error(outputs))


def same(inputs: Mapping[str, Any]) -> list[Any]:
    return [inputs["x"]]


def exact_sum(inputs: Mapping[str, Any]) -> list[Any]:
    return [inputs["x"].sum(1, keepdims=True)]


def test_digits_that_float32_cancels_are_kept_in_float64_on_every_case(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, CANCEL, same, X)
    counterfactual = standard_evaluation.in_float64(bench)
    assert not counterfactual.in_reference
    for inputs in (X, OTHER):
        case = answered(bench, inputs)
        assert case.fails
        error = counterfactual.error(case)
        assert error is not None
        assert error < 1e-9


def test_another_operation_is_as_wrong_in_float64(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, [node("Neg", "x")], same, X)
    error = standard_evaluation.in_float64(bench).error(bench.witness)
    assert error is not None
    assert abs(error - 2) < 1e-6


def test_an_operator_that_the_standard_lacks_can_not_be_tried(tmp_path: Path) -> None:
    unknown = node("NoSuchOperator", "x")
    bench = bench_of(tmp_path, [unknown], same, X)
    assert standard_evaluation.in_float64(bench).error(bench.witness) is None
    assert standard_evaluation.of_nodes(bench, [unknown]).error(bench.witness) is None


def test_a_kernels_values_are_replaced_by_the_standards_on_every_case(tmp_path: Path) -> None:
    nodes = [node("ReduceSum", "x", "axes")]
    bench = bench_of(tmp_path, nodes, exact_sum, LARGE, dtype=TensorProto.INT64)
    counterfactual = standard_evaluation.of_nodes(bench, bench.nodes)
    doubled = {"x": np.concatenate([LARGE["x"], LARGE["x"] * 3])}
    for inputs in (LARGE, doubled):
        case = answered(bench, inputs)
        assert case.fails
        assert counterfactual.error(case) == 0.0


def test_what_follows_a_replaced_node_runs_on_the_runtime(tmp_path: Path) -> None:
    nodes = [
        node("ReduceSum", "x", "axes", output="sum"),
        node("Neg", "sum", output="negative"),
        node("Neg", "negative"),
    ]
    bench = bench_of(tmp_path, nodes, exact_sum, LARGE, dtype=TensorProto.INT64)
    assert bench.witness.fails
    (sums, *_) = bench.model.graph.node
    assert standard_evaluation.of_nodes(bench, [sums]).error(bench.witness) == 0.0
    (*_, last) = bench.model.graph.node
    error = standard_evaluation.of_nodes(bench, [last]).error(bench.witness)
    assert error == bench.before  # that node was right


def test_a_wrong_node_behind_a_replaced_one_stays_wrong(tmp_path: Path) -> None:
    nodes = [node("ReduceSum", "x", "axes", output="sum"), node("Neg", "sum")]
    bench = bench_of(tmp_path, nodes, exact_sum, LARGE, dtype=TensorProto.INT64)
    (sums, _) = bench.model.graph.node
    error = standard_evaluation.of_nodes(bench, [sums]).error(bench.witness)
    assert error is not None
    assert abs(error - 2) < 1e-6
