"""The cause `axis-order`: axes or operands in another order."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.module_workbenches import file_of, module_workbench, node, without_line
from support.workbenches import without_tally

from onnxproof.diagnosis.causes import axis_order
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

RNG = np.random.default_rng(0)
X = {"x": RNG.normal(size=(2, 3, 3)).astype(np.float32)}
PAIR = {name: RNG.normal(size=(2, 3)).astype(np.float32) for name in ("a", "b")}
NOTHING = "no other order of axes or operands mends a named node"


class Turned(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x.transpose(1, 2)) * x


class Difference(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.exp(a - b)


class Joined(torch.nn.Module):
    def forward(self, past_key: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return torch.cat([past_key, key], 0)


def turned_bench(folder: Path, nodes: list[Any], located: dict[str, str]) -> Workbench:
    return module_workbench(folder, Turned(), file_of(nodes, X), X, located=located)


def test_a_transpose_that_the_file_leaves_out_is_named(tmp_path: Path) -> None:
    nodes = [node("Tanh", "x", output="t"), node("Mul", "t", "x")]
    tried = axis_order.test(turned_bench(tmp_path, nodes, {"t": "tanh"}))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference) == (True, False)
    assert without_line(tried.evidence) == (
        "t has the module's values with its axes in another order ([0, 2, 1] puts them back); "
        "put back in order, the answers are right"
    )


def test_another_permutation_is_put_right_in_the_file(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", "x", output="turned", perm=[0, 1, 2]),
        node("Tanh", "turned", output="t"),
        node("Mul", "t", "x"),
    ]
    tried = axis_order.test(turned_bench(tmp_path, nodes, {"turned": "transpose"}))
    assert isinstance(tried, Tried)
    assert tried.proven
    assert without_tally(tried.evidence).startswith(
        "with perm=[0, 2, 1] in turned the answers are right"
    )
    assert tried.fix is not None
    assert tried.fix.what == "set `perm` of turned to [0, 2, 1]"


def test_exchanged_operands_of_a_difference_are_named_and_put_right(tmp_path: Path) -> None:
    nodes = [node("Sub", "b", "a", output="d"), node("Exp", "d")]
    bench = module_workbench(
        tmp_path, Difference(), file_of(nodes, PAIR), PAIR, located={"d": "sub"}
    )
    tried = axis_order.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "axis-order")
    assert without_line(tried.evidence) == (
        "with the operands of d (Sub) exchanged the answers are right"
    )


def test_a_cache_that_is_joined_in_the_reverse_order_has_its_own_code(tmp_path: Path) -> None:
    inputs = {"past_key": PAIR["a"], "key": PAIR["b"]}
    file = file_of([node("Concat", "key", "past_key", axis=0)], inputs)
    tried = axis_order.test(
        module_workbench(tmp_path, Joined(), file, inputs, located={"y": "cat"})
    )
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "cache")
    assert without_tally(tried.evidence).endswith(
        "with the operands of y (Concat) exchanged the answers are right"
    )


def test_a_join_in_the_reverse_order_is_found_in_the_module(tmp_path: Path) -> None:
    inputs = {"past_key": PAIR["a"], "key": PAIR["b"]}
    file = file_of([node("Concat", "key", "past_key", axis=0)], inputs)
    tried = axis_order.test(
        module_workbench(tmp_path, Joined(), file, inputs, located={"y": "cat"})
    )
    assert isinstance(tried, Tried)
    assert tried.proven
    assert (
        without_line(tried.evidence)
        == "with the operands of y (Concat) exchanged the answers are right"
    )


def test_a_sum_for_a_difference_is_no_other_order(tmp_path: Path) -> None:
    nodes = [node("Add", "a", "b", output="d"), node("Exp", "d")]
    bench = module_workbench(
        tmp_path, Difference(), file_of(nodes, PAIR), PAIR, located={"d": "sub"}
    )
    assert axis_order.test(bench) == NOTHING


def test_values_that_are_transposed_and_scaled_are_not_put_back(tmp_path: Path) -> None:
    nodes = [
        node("Tanh", "x", output="t"),
        node("Add", "t", "t", output="twice"),
        node("Mul", "twice", "x"),
    ]
    assert axis_order.test(turned_bench(tmp_path, nodes, {"twice": "tanh"})) == NOTHING
