"""The cause `baked-value`: a number of the example that stands in the file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.module_workbenches import file_of, module_workbench, node, without_line

from onnxproof.diagnosis.causes import baked_value
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

EXAMPLE = {"x": np.array([[1.0, 2.0, 4.0]], np.float32)}
WITNESS = {"x": np.array([[3.0, 8.0, 6.0]], np.float32)}
NOTHING = "no constant of the named nodes is a value the module computes"


class Peak(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) / x.max().item()


class PeakTensor(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) / x.max()


class Branch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factor = 2.0
        if bool((x.sum() > 10).item()):
            factor = 3.0
        return torch.sin(x) * factor


class Mean(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(1, keepdim=True) / int(x.shape[1]) + 0 * x


def peak_bench(
    folder: Path, module: torch.nn.Module, number: float, function: str = "Sin"
) -> Workbench:
    nodes = [node(function, "x", output="wave"), node("Div", "wave", "n")]
    file = file_of(nodes, WITNESS, {"n": np.array(number, np.float32)})
    return module_workbench(folder, module, file, WITNESS, example=EXAMPLE, located={"y": "div"})


def test_a_number_that_was_read_of_the_example_is_named(tmp_path: Path) -> None:
    tried = baked_value.test(peak_bench(tmp_path, Peak(), 4.0))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference, tried.code) == (True, True, "baked-value")
    assert without_line(tried.evidence).startswith(
        "the module with the example's number 4.0 in `_local_scalar_dense`"
    )


def test_a_constant_for_which_the_module_computes_a_number_is_named(tmp_path: Path) -> None:
    tried = baked_value.test(peak_bench(tmp_path, PeakTensor(), 4.0))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference, tried.code) == (True, False, "baked-value")
    assert without_line(tried.evidence).startswith("y holds 4, where the module computes 8 (max")


def test_a_branch_that_the_example_took_has_its_own_code(tmp_path: Path) -> None:
    nodes = [node("Sin", "x", output="wave"), node("Mul", "wave", "n")]
    file = file_of(nodes, WITNESS, {"n": np.array(2, np.float32)})
    bench = module_workbench(
        tmp_path, Branch(), file, WITNESS, example=EXAMPLE, located={"y": "mul"}
    )
    tried = baked_value.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "baked-branch")
    assert "the module with the example's answer False in" in tried.evidence


def test_a_size_that_the_example_wrote_down_has_its_own_code(tmp_path: Path) -> None:
    wide = {"x": np.array([[3.0, 8.0, 6.0, 1.0, 7.0]], np.float32)}
    nodes = [
        node("ReduceSum", "x", "axes", output="sum"),
        node("Div", "sum", "n", output="mean"),
        node("Mul", "x", "zero", output="nothing"),
        node("Add", "mean", "nothing"),
    ]
    constants: dict[str, Any] = {"axes": np.array([1]), "n": np.array(3, np.float32)}
    file = file_of(nodes, wide, {**constants, "zero": np.array(0, np.float32)})
    bench = module_workbench(tmp_path, Mean(), file, wide, example=EXAMPLE, located={"mean": "div"})
    tried = baked_value.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "baked-dimension")
    assert tried.evidence.startswith("the module with the example's number 3 in `div`")


@pytest.mark.parametrize("module", [Peak(), PeakTensor()])
def test_another_function_beside_the_right_number_is_no_baked_value(
    module: torch.nn.Module, tmp_path: Path
) -> None:
    assert baked_value.test(peak_bench(tmp_path, module, 8.0, "Cos")) == NOTHING


def test_a_number_beside_another_fault_is_not_proven(tmp_path: Path) -> None:
    assert baked_value.test(peak_bench(tmp_path, Peak(), 4.0, "Cos")) == NOTHING
