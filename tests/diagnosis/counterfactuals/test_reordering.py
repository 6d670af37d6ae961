"""Values in another order, and values that are off by a factor."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from onnx.reference import ReferenceEvaluator
from support.module_workbenches import file_of, module_workbench, node
from support.workbenches import without_tally

from onnxproof.diagnosis.causes import axis_order
from onnxproof.diagnosis.counterfactuals.lost_factor import common_ratio, find_lost_factor

RNG = np.random.default_rng(0)


def graph_of_identity() -> onnx.GraphProto:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, 4])
    y = helper.make_empty_tensor_value_info("y")
    return helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])


def run(graph: onnx.GraphProto, x: Any) -> Any:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    return ReferenceEvaluator(model).run(None, {"x": x})[0]


@pytest.mark.parametrize("order", [[2, 0, 1], [2, 1, 0]])
def test_slices_are_put_back_in_the_graph(order: list[int]) -> None:
    truth = RNG.normal(size=(3, 4)).astype(np.float32)
    value = truth[np.argsort(order)]
    assert axis_order.slice_order(value, truth, axis=0) == order
    reordering = axis_order._reorder_slices(value, truth, "y")
    assert reordering is not None
    graph = graph_of_identity()
    change, _ = reordering
    change(graph)
    assert np.array_equal(run(graph, value), truth)
    assert graph.node[1].op_type == ("Slice" if order == [2, 1, 0] else "Gather")


def test_axes_are_put_back_in_the_graph() -> None:
    truth = RNG.normal(size=(4, 3)).astype(np.float32)
    reordering = axis_order._reorder_axes(truth.T, truth, "y")
    assert reordering is not None
    graph = graph_of_identity()
    change, what = reordering
    change(graph)
    assert np.array_equal(run(graph, truth.T), truth)
    assert what == "its axes in another order ([1, 0] puts them back)"


def test_slices_in_place_or_missing_have_no_order() -> None:
    truth = RNG.normal(size=(3, 4))
    assert axis_order.slice_order(truth, truth, axis=0) is None
    assert axis_order.slice_order(truth + 1, truth, axis=0) is None
    assert axis_order.slice_order(np.full((3, 4), np.nan), truth, axis=0) is None


def test_the_common_ratio_ignores_what_is_small() -> None:
    value = np.array([1.0, -2.0, 1e-6])
    assert common_ratio(np.array([3.0, -6.0, 5.0]), value) == 3.0
    assert common_ratio(np.array([3.0, -5.0, 0.0]), value) is None
    assert common_ratio(np.zeros(0), np.zeros(0)) is None


class Scaled(torch.nn.Module):
    """The mean of each row, times a number or a weight."""

    def __init__(self, factor: float, *, is_weight: bool) -> None:
        super().__init__()
        self.factor: Any = factor
        if is_weight:
            self.factor = torch.nn.Parameter(torch.tensor(factor))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(1, keepdim=True) * self.factor


class OtherDivisor(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(1, keepdim=True) / (x.shape[1] - 1)


@pytest.mark.parametrize(
    ("module", "call", "words"),
    [
        (OtherDivisor(), "div", "it divides by 4 where the module divides by 3 (or the reverse)"),
        (Scaled(0.37, is_weight=False), "mul", "the module has a factor 0.37"),
        (Scaled(0.7123, is_weight=True), "mul", "a factor was lost"),
    ],
)
def test_a_factor_is_explained_by_a_size_or_by_a_number(
    module: torch.nn.Module, call: str, words: str, tmp_path: Path
) -> None:
    rows = {"x": RNG.normal(size=(2, 4)).astype(np.float32)}
    file = file_of([node("ReduceMean", "x", "axes")], rows, {"axes": np.array([1])})
    bench = module_workbench(tmp_path, module, file, rows, located={"y": call})
    tried = find_lost_factor(bench)
    assert tried is not None
    assert tried.proven
    ratio = bench.scene.truth[0][0, 0] / rows["x"].mean(1)[0]
    observed, _, rest = tried.evidence.partition(": ")
    assert observed.startswith("y (ReduceMean) gives the module's values times ")
    assert float(observed.split()[-1]) == pytest.approx(1 / ratio, rel=1e-5)
    assert rest.startswith(f"{words}; times ")
    assert without_tally(tried.evidence).endswith(", the answers are right")


def test_values_that_are_off_by_no_single_factor_have_lost_none(tmp_path: Path) -> None:
    rows = {"x": RNG.normal(size=(2, 4)).astype(np.float32)}
    file = file_of([node("ReduceMax", "x", "axes")], rows, {"axes": np.array([1])})
    module = Scaled(0.37, is_weight=False)
    bench = module_workbench(tmp_path, module, file, rows, located={"y": "mul"})
    assert find_lost_factor(bench) is None
