"""The cause `mutation`: what the module writes in place, or computes, and the file does not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.module_workbenches import file_of, module_workbench, node, without_line

from onnxproof.diagnosis.causes import mutation
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

X = {"x": np.array([[1.0, 4.0], [9.0, 16.0]], np.float32)}
NUMBERS = {"two": np.array(2, np.float32), "one": np.array(1, np.float32)}
NOTHING = "no such change of the module gives what the candidate gives"


class Writes(torch.nn.Module):
    """A write through a view, which tracing does not see."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.t()[0] = 9.0
        return y + 1


class Roots(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sqrt(x) + 1


def bench_of(
    folder: Path, module: torch.nn.Module, nodes: list[Any], located: dict[str, str]
) -> Workbench:
    return module_workbench(folder, module, file_of(nodes, X, NUMBERS), X, located=located)


def test_a_write_that_was_lost_is_named(tmp_path: Path) -> None:
    nodes = [node("Mul", "x", "two", output="twice"), node("Add", "twice", "one")]
    tried = mutation.test(bench_of(tmp_path, Writes(), nodes, {"y": "add"}))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference, tried.code) == (True, True, "")
    assert without_line(tried.evidence) == (
        "the module with `fill_` left out, and what else it writes in place, "
        "gives what the candidate gives"
    )


@pytest.mark.parametrize(("indices", "lost"), [([], "all"), ([[0, 0], [0, 1]], "the second line")])
def test_all_writes_are_left_out_together_and_those_of_one_line_alone(
    indices: list[list[int]], lost: str, tmp_path: Path
) -> None:
    class TwoLines(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            y[0] = 9.0
            y[1] = 7.0
            return y + 1

    nodes = [node("Mul", "x", "two", output="twice")]
    constants = dict(NUMBERS)
    if indices:  # the file has the first line's write
        nodes.append(node("ScatterND", "twice", "index", "nine", output="written"))
        constants |= {"index": np.array(indices), "nine": np.full(2, 9, np.float32)}
    nodes.append(node("Add", nodes[-1].output[0], "one"))
    file = file_of(nodes, X, constants)
    tried = mutation.test(module_workbench(tmp_path, TwoLines(), file, X, located={"y": "add"}))
    assert isinstance(tried, Tried)
    assert tried.proven
    line = "y[0] = 9.0" if lost == "all" else "y[1] = 7.0"
    assert f"`{line}`) left out, and what else it writes in place" in tried.evidence


def test_an_operation_that_is_missing_has_a_code_of_its_own(tmp_path: Path) -> None:
    tried = mutation.test(bench_of(tmp_path, Roots(), [node("Add", "x", "one")], {"y": "add"}))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "missing-op")
    assert without_line(tried.evidence) == (
        "the module with `sqrt` left out gives what the candidate gives"
    )


def test_the_operand_that_went_through_is_named(tmp_path: Path) -> None:
    class Larger(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.maximum(x, 20 - x)

    nodes = [node("Mul", "x", "zero", output="none"), node("Add", "x", "none")]
    constants = {"zero": np.array(0, np.float32), "twenty": np.array(20, np.float32)}
    second = [node("Sub", "twenty", "x")]
    for file_nodes, what in ((nodes, "left out"), (second, "left out (its second operand goes")):
        file = file_of(file_nodes, X, constants)
        bench = module_workbench(tmp_path, Larger(), file, X, located={"y": "maximum"})
        tried = mutation.test(bench)
        assert isinstance(tried, Tried)
        assert without_line(tried.evidence).startswith(f"the module with `maximum` {what}")


def test_a_write_of_another_number_was_not_lost(tmp_path: Path) -> None:
    nodes = [
        node("Mul", "x", "two", output="twice"),
        node("ScatterND", "twice", "index", "eight", output="written"),
        node("Add", "written", "one"),
    ]
    constants = {**NUMBERS, "index": np.array([[0, 0], [1, 0]]), "eight": np.full(2, 8, np.float32)}
    file = file_of(nodes, X, constants)
    bench = module_workbench(tmp_path, Writes(), file, X, located={"y": "add"})
    assert bench.before > 0.01
    assert mutation.test(bench) == NOTHING


def test_another_operation_in_its_place_is_not_missing(tmp_path: Path) -> None:
    nodes = [node("Log", "x", output="log"), node("Add", "log", "one")]
    assert mutation.test(bench_of(tmp_path, Roots(), nodes, {"log": "sqrt"})) == NOTHING


class Normed(torch.nn.Module):
    """A norm has three results, of which the first goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(torch.sqrt(x)) * 2


def test_a_norm_that_is_missing_is_named(tmp_path: Path) -> None:
    nodes = [node("Sqrt", "x", output="root"), node("Mul", "root", "two")]
    tried = mutation.test(bench_of(tmp_path, Normed(), nodes, {"y": "mul"}))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference, tried.code) == (True, True, "missing-op")
    assert "norm" in tried.evidence
    assert "left out gives what the candidate gives" in tried.evidence


class SoftCaps(torch.nn.Module):
    """Two blocks with a soft cap: three calls of one line."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = 4 * torch.tanh(x / 4)
            x = x + 1
        return x


@pytest.mark.parametrize("missing", ["both", "first"])
def test_calls_in_a_row_that_are_missing_are_named_together(missing: str, tmp_path: Path) -> None:
    nodes = [node("Add", "x", "one", output="first")]
    constants = dict(NUMBERS)
    if missing == "first":
        nodes += [
            node("Div", "first", "four", output="part"),
            node("Tanh", "part", output="bent"),
            node("Mul", "bent", "four", output="capped"),
        ]
        constants["four"] = np.array(4, np.float32)
    nodes.append(node("Add", nodes[-1].output[0], "one"))
    file = file_of(nodes, X, constants)
    tried = mutation.test(module_workbench(tmp_path, SoftCaps(), file, X, located={"y": "add"}))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "missing-op")
    assert "without `div`, `tanh`, `mul` (from `div`" in tried.evidence


class Scaled(torch.nn.Module):
    """A parameter stands before the value that it scales."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([0.5, -2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.scale * torch.tanh(x)


def test_a_missing_product_with_a_parameter_lets_the_computed_value_through(
    tmp_path: Path,
) -> None:
    nodes = [node("Tanh", "x", output="bent"), node("Add", "x", "bent")]
    bench = module_workbench(tmp_path, Scaled(), file_of(nodes, X), X, located={"y": "add"})
    tried = mutation.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "missing-op")
    assert without_line(tried.evidence) == (
        "the module with `mul` left out gives what the candidate gives"
    )
