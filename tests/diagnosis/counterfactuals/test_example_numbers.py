"""Numbers that the example wrote into calls of a module, beside those of the witness."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from support.module_workbenches import file_of, module_workbench, node

from onnxproof.diagnosis.counterfactuals.changed_reference import Change, changed_calls
from onnxproof.diagnosis.counterfactuals.example_numbers import example_numbers, takes_other_path
from onnxproof.diagnosis.counterfactuals.workbench import Workbench

SHORT = {"x": np.array([[1.0, 2.0, 4.0]], np.float32)}
LONG = {"x": np.array([[3.0, 1.0, 2.0, 8.0, 6.0]], np.float32)}


class Peak(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) / x.max().item()


class Mean(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(1) / int(x.shape[1])


class Width(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(1) / torch.tensor([x.shape[1]])


class Branch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * int(x.shape[1])
        if x.shape[1] > 4:
            return torch.exp(y)
        return torch.sin(y) + int(x.shape[1])


class Refusing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] < 4:
            raise ValueError("too short")
        return x * int(x.shape[1])


def error_left(bench: Workbench, changes: Mapping[int, Change]) -> float:
    """The error between the module with some calls changed and the file, on the witness."""
    error = changed_calls(bench, changes).error(bench.witness)
    assert error is not None
    return error


def bench_of(folder: Path, module: torch.nn.Module, divisor: float = 1.0) -> Workbench:
    """The witness is long, the example short; the file divides by a number."""
    nodes = [node("Div", "x", "d")]
    file = file_of(nodes, LONG, {"d": np.array(divisor, np.float32)})
    return module_workbench(folder, module, file, LONG, example=SHORT)


def test_a_number_that_was_read_of_the_example_is_given_back_at_its_call(tmp_path: Path) -> None:
    nodes = [node("Sin", "x", output="s"), node("Div", "s", "d")]
    file = file_of(nodes, LONG, {"d": np.array(4.0, np.float32)})
    bench = module_workbench(tmp_path, Peak(), file, LONG, example=SHORT)
    number, division = example_numbers(bench)
    assert (number.op, number.number) == ("_local_scalar_dense", 4.0)
    assert (division.op, division.number) == ("div", 4.0)
    assert error_left(bench, {}) > 0.5
    assert error_left(bench, {number.call: number.change}) < 1e-6


def test_a_size_of_the_example_is_an_argument_of_a_call(tmp_path: Path) -> None:
    nodes = [node("ReduceSum", "x", "axes", output="s", keepdims=0), node("Div", "s", "d")]
    constants = {"axes": np.array([1], np.int64), "d": np.array(3.0, np.float32)}
    bench = module_workbench(tmp_path, Mean(), file_of(nodes, LONG, constants), LONG, example=SHORT)
    (number,) = example_numbers(bench)
    assert (number.op, number.number) == ("div", 3)
    assert error_left(bench, {number.call: number.change}) < 1e-6


def test_a_tensor_that_is_written_down_in_python_counts_as_numbers(tmp_path: Path) -> None:
    nodes = [node("ReduceSum", "x", "axes", output="s", keepdims=0), node("Div", "s", "d")]
    constants = {"axes": np.array([1], np.int64), "d": np.array([3.0], np.float32)}
    bench = module_workbench(
        tmp_path, Width(), file_of(nodes, LONG, constants), LONG, example=SHORT
    )
    (number,) = example_numbers(bench)
    assert (number.op, number.number) == ("lift_fresh", [3])
    assert error_left(bench, {number.call: number.change}) < 1e-6


def test_numbers_are_compared_as_far_as_both_take_one_path(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, Branch())
    assert takes_other_path(bench)
    assert [(number.op, number.number) for number in example_numbers(bench)] == [("mul", 3)]


def test_the_same_sizes_and_values_give_no_number(tmp_path: Path) -> None:
    file = file_of([node("Identity", "x")], LONG)
    bench = module_workbench(tmp_path, Branch(), file, LONG)
    assert not takes_other_path(bench)
    assert list(example_numbers(bench)) == []


def test_a_module_that_refuses_its_example_says_nothing(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, Refusing())
    assert not takes_other_path(bench)
    assert list(example_numbers(bench)) == []
