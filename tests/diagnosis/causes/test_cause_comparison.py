"""The cause `comparison`: a boundary on the other side."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto
from support.module_workbenches import file_of, module_workbench, node, without_line

from onnxproof.diagnosis.causes import comparison
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

X = {"x": np.array([[0.5, 1.0, 1.5, 2.0, 2.5]], np.float32)}


class Limit(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x >= 1.0).to(x.dtype) * x


def limit_bench(folder: Path, op_type: str, limit: float) -> Workbench:
    nodes = [
        node(op_type, "x", "limit", output="inside"),
        node("Cast", "inside", output="mask", to=TensorProto.FLOAT),
        node("Mul", "mask", "x"),
    ]
    file = file_of(nodes, X, {"limit": np.array(limit, np.float32)})
    return module_workbench(folder, Limit(), file, X, located={"inside": "ge"})


@pytest.mark.parametrize(("op_type", "call"), [("Greater", "gt"), ("Less", "lt"), ("Equal", "eq")])
def test_the_other_comparison_is_named_and_put_right(
    op_type: str, call: str, tmp_path: Path
) -> None:
    tried = comparison.test(limit_bench(tmp_path, op_type, 1.0))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference) == (True, False)
    assert without_line(tried.evidence) == (
        f"inside is {op_type}; with GreaterOrEqual the answers are right"
    )
    assert tried.fix is not None
    assert tried.fix.what == "make inside a GreaterOrEqual"


def test_a_limit_that_was_moved_is_no_other_comparison(tmp_path: Path) -> None:
    bench = limit_bench(tmp_path, "GreaterOrEqual", 2.0)
    assert bench.before > 0.1
    assert comparison.test(bench) == "no other operator of the family mends a named node"


def test_a_branch_that_is_never_taken_is_no_comparison_for_equality(tmp_path: Path) -> None:
    """Above a limit that nothing reaches the module changes its input; the file has a lower limit."""

    class Rare(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.where(x > 9.0, x * 0, x)

    nodes = [
        node("Greater", "x", "limit", output="above"),
        node("Where", "above", "zero", "x"),
    ]
    constants = {"limit": np.array(1.2, np.float32), "zero": np.array(0, np.float32)}
    file = file_of(nodes, X, constants)
    bench = module_workbench(tmp_path, Rare(), file, X, located={"above": "gt"})
    assert bench.before > 0.1
    assert comparison.test(bench) == "no other operator of the family mends a named node"


def test_fractions_that_are_cut_before_they_are_asked_for_are_named(tmp_path: Path) -> None:
    class Some(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.any(x, dim=1).to(torch.float32) + 1

    rows: dict[str, Any] = {"x": np.array([[0.0, 0.5], [3.0, 0.0], [0.0, 0.0]], np.float32)}
    nodes = [
        node("Cast", "x", output="whole", to=TensorProto.INT64),
        node("Cast", "whole", output="truth", to=TensorProto.BOOL),
        node("Cast", "truth", output="flags", to=TensorProto.FLOAT),
        node("ReduceMax", "flags", "axes", output="some", keepdims=0),
        node("Add", "some", "one"),
    ]
    constants = {"axes": np.array([1]), "one": np.array(1, np.float32)}
    file = file_of(nodes, rows, constants)
    bench = module_workbench(tmp_path, Some(), file, rows, located={"some": "any"})
    tried = comparison.test(bench)
    assert isinstance(tried, Tried)
    assert without_line(tried.evidence) == (
        "the module with `any` of the values cut to integers gives what the candidate gives"
    )
