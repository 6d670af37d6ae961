"""Numbers that may stand in the place of a wrong one."""

from pathlib import Path

import numpy as np
import pytest
import torch
from support.module_workbenches import file_of, module_workbench, node
from support.workbenches import workbench

from onnxproof.diagnosis.counterfactuals.module_numbers import file_numbers, module_numbers

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


class Chain(torch.nn.Module):
    """A slope, then eight steps without numbers, then a power."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.leaky_relu(x, 0.25)
        for _ in range(8):
            x = torch.sin(x)
        return torch.pow(x + 2, 3.7)


def test_the_numbers_of_the_modules_call_come_first_with_what_formulas_make_of_them(
    tmp_path: Path,
) -> None:
    file = file_of([node("LeakyRelu", "x", alpha=0.1)], {"x": X})
    bench = module_workbench(tmp_path, Chain(), file, {"x": X}, located={"y": "leaky_relu"})
    numbers = module_numbers(bench, bench.nodes[0])
    assert {0.25, -0.25, 4.0, 0.5, 2.0} <= set(numbers)
    assert numbers.index(0.25) < numbers.index(np.pi)
    assert 3.7 not in numbers  # of a call that is ten steps away
    assert len(numbers) == len(set(numbers))


def test_without_a_counterpart_the_numbers_of_all_calls_are_read(tmp_path: Path) -> None:
    file = file_of([node("LeakyRelu", "x", alpha=0.1)], {"x": X})
    bench = module_workbench(tmp_path, Chain(), file, {"x": X}, located={"y": ""})
    assert {0.25, 3.7} <= set(module_numbers(bench, bench.nodes[0]))


def test_a_number_that_is_not_positive_has_no_root(tmp_path: Path) -> None:
    class Shifted(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.clamp(x, min=-9.0, max=0.0)

    file = file_of([node("Relu", "x")], {"x": X})
    bench = module_workbench(tmp_path, Shifted(), file, {"x": X}, located={"y": "clamp"})
    numbers = module_numbers(bench, bench.nodes[0])
    assert {-9.0, 9.0, -1 / 9, 0.0} <= set(numbers)
    assert all(isinstance(number, float) and np.isfinite(number) for number in numbers)


def test_the_product_of_a_list_is_a_number_and_a_flag_is_none(tmp_path: Path) -> None:
    class Pool(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.avg_pool2d(x, (2, 3), ceil_mode=True)

    image = {"x": X[None, None]}
    file = file_of([node("Relu", "x")], image)
    bench = module_workbench(tmp_path, Pool(), file, image, located={"y": "avg_pool2d"})
    numbers = module_numbers(bench, bench.nodes[0])
    assert {2.0, 3.0, 6.0, 1 / 6} <= set(numbers)
    assert 1.0 not in numbers


def test_the_numbers_of_the_file_are_attributes_and_small_constants_of_the_located_nodes(
    tmp_path: Path,
) -> None:
    image = np.ones((1, 1, 4, 4), np.float32)
    constants = {
        "few": np.array([7.0, np.inf], np.float32),
        "many": np.full(5, 8.0, np.float32),
        "w": np.ones((1, 1, 2, 2), np.float32) * 5,
    }
    nodes = [
        node("Elu", "x", output="elsewhere", alpha=0.125),
        node("LeakyRelu", "elsewhere", output="read", alpha=0.5),
        node("Conv", "read", "w", output="y", pads=[1, 2, 3, 4]),
    ]
    model = file_of(nodes, {"x": image}, constants)
    numbers, lists = file_numbers(workbench(tmp_path, model, image, {"x": image}, nodes=["y"]))
    assert numbers == [5.0, 0.5]  # those of its own weights, then of the node that it reads
    assert lists == [[1, 2, 3, 4], [1, 2]]
    nodes = [node("Add", "x", "few", output="sum"), node("Mul", "sum", "many")]
    flat = {"x": np.ones((2, 1), np.float32)}
    bench = workbench(tmp_path, file_of(nodes, flat, constants), X, flat, nodes=["sum", "y"])
    assert file_numbers(bench) == ([pytest.approx(7.0)], [])
