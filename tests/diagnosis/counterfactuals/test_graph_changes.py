"""Changes of hand-made graphs that make them right: the workbench, and what is tried in it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import helper
from support.workbenches import graph_model, without_tally, workbench

from onnxproof.diagnosis.causes import (
    axis_order,
    baked_dimension,
    clipping,
    kernel,
    overflow,
    precision,
    scatter,
)
from onnxproof.diagnosis.counterfactuals.image_sampling import try_crops, try_resizes
from onnxproof.diagnosis.counterfactuals.misplaced_weights import try_exchanged_weights
from onnxproof.diagnosis.counterfactuals.swapped_operator import (
    try_exchanged_operands,
    try_other_operators,
)
from onnxproof.diagnosis.counterfactuals.workbench import ComparedCases, Tried, attribute_value
from onnxproof.results import DimInfo

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4)).astype(np.float32)
IMAGE = RNG.normal(size=(1, 3, 8, 8)).astype(np.float32)


def node(op_type: str, *inputs: str, output: str = "y", **attributes: Any) -> Any:
    return helper.make_node(op_type, list(inputs), [output], name=output, **attributes)


def test_the_workbench_reads_values_and_constants(tmp_path: Path) -> None:
    nodes = [
        node("Constant", output="two", value_floats=[2.0]),
        node("Constant", output="three", value=helper.make_tensor("three", 1, [1], [3.0])),
        node("Mul", "x", "three", output="inner"),
        node("Add", "inner", "w"),
    ]
    model = graph_model(nodes, {"x": X}, {"w": np.ones(4, np.float32)})
    three = {"three": np.array([3.0], np.float32)}
    right = graph_model([node("Mul", "x", "three")], {"x": X}, three)
    bench = workbench(tmp_path, model, right, {"x": X}, nodes=["y", "nowhere"])
    assert [n.name for n in bench.nodes] == ["y"]
    assert [n.name for n in bench.nodes_and_producers] == ["y", "inner"]
    inner = bench.value("inner")
    assert inner is not None
    assert np.allclose(inner, 3 * X)
    assert [(p, n, v.tolist()) for p, n, v in bench.constants(bench.nodes_and_producers[1])] == [
        (1, "three", [3.0])
    ]
    assert [name for _, name, _ in bench.constants(nodes[3])] == ["w"]
    assert bench.before > 0.1
    mended = bench.with_constant(bench.nodes[0], 1, np.zeros(4, np.float32))
    tried = bench.try_model(mended, evidence="without it", fix="drop it")
    assert tried is not None
    assert (tried.proven, without_tally(tried.evidence)) == (True, "without it")
    assert bench.try_model(bench.copy_model(), evidence="", fix="") is None


def test_an_edited_attribute_leaves_the_candidate_alone(tmp_path: Path) -> None:
    model = graph_model([node("LeakyRelu", "x", alpha=0.5)], {"x": X})
    bench = workbench(tmp_path, model, X, {"x": X}, nodes=["y"])

    def change(changed: Any) -> None:
        del changed.attribute[:]

    assert attribute_value(bench.with_node(bench.nodes[0], change).graph.node[0], "alpha") is None
    assert attribute_value(bench.model.graph.node[0], "alpha") == 0.5


def test_another_operator_or_order_of_operands_is_right(tmp_path: Path) -> None:
    inputs = {"x": X, "z": X[::-1].copy()}
    bench = workbench(
        tmp_path,
        graph_model([node("Sub", "x", "z")], inputs),
        graph_model([node("Sub", "z", "x")], inputs),
        inputs,
        nodes=["y"],
    )
    exchanged = try_exchanged_operands(bench, ["Sub"])
    assert exchanged is not None
    assert exchanged[0].name == "y"
    model = graph_model([node("ReduceMax", "x", keepdims=1)], {"x": X})
    right = graph_model([node("ReduceMin", "x", keepdims=1)], {"x": X})
    bench = workbench(tmp_path, model, right, {"x": X}, nodes=["y"])
    tried = try_other_operators(bench, [("ReduceMax", "ReduceMin")], keep_attributes=True)
    assert isinstance(tried, Tried)
    assert tried.proven
    assert without_tally(tried.evidence) == "y is ReduceMax; with ReduceMin the answers are right"


def test_two_nodes_that_read_each_others_weights_are_named(tmp_path: Path) -> None:
    constants = {
        "a": RNG.normal(size=(4, 4)).astype(np.float32),
        "b": RNG.normal(size=(4, 4)).astype(np.float32),
    }
    wrong = [node("MatMul", "x", "b", output="h"), node("MatMul", "h", "a")]
    model = graph_model(wrong, {"x": X}, constants)
    nodes = [node("MatMul", "x", "a", output="h"), node("MatMul", "h", "b")]
    right = graph_model(nodes, {"x": X}, constants)
    tried = try_exchanged_weights(workbench(tmp_path, model, right, {"x": X}, nodes=["h"]))
    assert tried is not None
    assert tried.proven
    assert without_tally(tried.evidence) == (
        "h and y read each other's weights: exchanged, the answers are right"
    )


def test_a_crop_is_moved_and_a_resize_is_replaced(tmp_path: Path) -> None:
    ends = {"starts": [0, 0], "ends": [4, 4], "axes": [2, 3]}
    constants = {name: np.array(numbers, np.int64) for name, numbers in ends.items()}
    model = graph_model([node("Slice", "x", *constants)], {"x": IMAGE}, constants)
    centre = {"starts": [2, 2], "ends": [6, 6], "axes": [2, 3]}
    middle = {name: np.array(numbers, np.int64) for name, numbers in centre.items()}
    right = graph_model([node("Slice", "x", *middle)], {"x": IMAGE}, middle)
    bench = workbench(tmp_path, model, right, {"x": IMAGE}, nodes=["y"])
    tried = try_crops(bench, "x", list(bench.nodes))
    assert tried is not None
    assert tried.proven
    assert without_tally(tried.evidence).endswith(
        "cuts another part out of `x`; from the centre the answers are right"
    )
    sizes = {"sizes": np.array([1, 3, 4, 4], np.int64)}

    def resize(**attributes: Any) -> Any:
        nodes = [node("Resize", "x", "", "", "sizes", **attributes)]
        return graph_model(nodes, {"x": IMAGE}, sizes)

    right = resize(mode="linear", coordinate_transformation_mode="align_corners")
    bench = workbench(tmp_path, resize(mode="nearest"), right, {"x": IMAGE}, nodes=["y"])
    tried = try_resizes(bench, list(bench.nodes))
    assert tried is not None
    assert tried.proven
    assert tried.evidence.startswith("when y (Resize) resizes bilinear with aligned corners")


@pytest.mark.parametrize("op_type", ["Relu", "Identity"])
def test_a_bound_is_put_back(op_type: str, tmp_path: Path) -> None:
    clamp = SimpleNamespace(op="clamp", arguments={"min": -0.5, "max": None})
    model = graph_model([node(op_type, "x")], {"x": X})
    low = {"low": np.array(-0.5, np.float32)}
    right = graph_model([node("Clip", "x", "low")], {"x": X}, low)
    bench = workbench(
        tmp_path, model, right, {"x": X}, nodes=["y"], found={"traced_values": [clamp]}
    )
    tried = clipping._clip_nodes(bench)
    assert isinstance(tried, Tried)
    assert tried.proven
    assert without_tally(tried.evidence) == (
        "with a Clip to [-0.5, None] at y the answers are right"
    )


def test_another_permutation_or_a_transpose_before_a_reshape_is_right(tmp_path: Path) -> None:
    cube = RNG.normal(size=(2, 2, 2)).astype(np.float32)
    model = graph_model([node("Transpose", "x", perm=[0, 2, 1])], {"x": cube})
    right = graph_model([node("Transpose", "x", perm=[2, 1, 0])], {"x": cube})
    bench = workbench(tmp_path, model, right, {"x": cube}, nodes=["y"])
    tried = axis_order._try_permutations(bench)
    assert tried is not None
    assert tried.proven
    assert without_tally(tried.evidence) == "with perm=[2, 1, 0] in y the answers are right"
    shape = {"shape": np.array([12], np.int64)}
    model = graph_model([node("Reshape", "x", "shape")], {"x": X}, shape)
    turned = [node("Transpose", "x", output="t", perm=[1, 0]), node("Reshape", "t", "shape")]
    bench = workbench(tmp_path, model, graph_model(turned, {"x": X}, shape), {"x": X}, nodes=["y"])
    tried = axis_order._transpose_before_reshape(bench)
    assert tried is not None
    assert tried.proven
    assert without_tally(tried.evidence) == (
        "with the input of y transposed by [1, 0] first the answers are right"
    )


def test_a_narrowing_cast_is_taken_out(tmp_path: Path) -> None:
    nodes = [node("Cast", "x", output="half", to=10), node("Cast", "half", to=1)]
    model = graph_model(nodes, {"x": X})
    right = graph_model([node("Identity", "x")], {"x": X})
    bench = workbench(tmp_path, model, right, {"x": X}, nodes=["half"])
    tried = precision.test(bench)
    assert isinstance(tried, Tried)
    assert tried.proven
    assert without_tally(tried.evidence) == (
        "without the cast to float16 at half the answers are right"
    )


def test_another_reduction_of_a_scatter_is_right(tmp_path: Path) -> None:
    constants = {"index": np.array([[0], [0]], np.int64), "update": np.ones((2, 4), np.float32)}
    model = graph_model([node("ScatterND", "x", *constants)], {"x": X}, constants)
    added = node("ScatterND", "x", *constants, reduction="add")
    right = graph_model([added], {"x": X}, constants)
    tried = scatter._try_reductions(workbench(tmp_path, model, right, {"x": X}, nodes=["y"]))
    assert isinstance(tried, Tried)
    assert tried.proven
    assert without_tally(tried.evidence) == "with reduction `add` at y the answers are right"


def test_the_first_node_that_is_not_finite_is_named_with_its_largest_input(tmp_path: Path) -> None:
    large = np.full((2,), 100.0, np.float32)
    model = graph_model([node("Exp", "x", output="e"), node("Log", "e")], {"x": large})
    first = overflow.first_nonfinite_node(workbench(tmp_path, model, large, {"x": large}))
    assert first is not None
    assert (first[0].name, first[1]) == ("e", 100.0)


def test_a_kernel_that_follows_the_standard_has_no_error(tmp_path: Path) -> None:
    model = graph_model([node("Exp", "x")], {"x": X})
    bench = workbench(tmp_path, model, X, {"x": X}, nodes=["y"])
    error = kernel.kernel_error(bench, bench.nodes[0])
    assert error is not None
    assert error < 1e-6


@pytest.mark.parametrize(
    ("bad", "code"), [((5, 6), ""), ((4, 5, 6), None), ((5,), None)], ids=["baked", "both", "one"]
)
def test_a_dim_that_separates_right_cases_from_wrong_ones_is_a_likeness(
    bad: tuple[int, ...], code: str | None, tmp_path: Path
) -> None:
    sizes = {f"case-{size}": {"n": size} for size in (4, 5, 6)}
    wrong = {name: size["n"] in bad for name, size in sizes.items()}
    cases = ComparedCases(sizes=sizes, beyond_noise=wrong, ordinary=dict.fromkeys(sizes, True))
    model = graph_model([node("Exp", "x")], {"x": X})
    bench = workbench(tmp_path, model, X, {"x": X}, cases=cases)
    dims = (DimInfo(name="n", example=4),)
    (port,) = bench.scene.signature.inputs
    ports = (replace(port, dims=(3, "n")),)
    signature = replace(bench.scene.signature, dims=dims, inputs=ports)
    bench.scene = replace(bench.scene, signature=signature)
    tried = baked_dimension.test(bench)
    if code is None:
        assert tried == "no dim separates the cases that agree from those that don't"
    else:
        assert isinstance(tried, Tried)
        assert (tried.proven, tried.error_left, tried.code) == (False, None, code)
        assert tried.evidence == "right at n=4, wrong at 5, 6: every case of those sizes"
