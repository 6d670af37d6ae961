"""The cause `attribute` where a located node is another operator than the module's, has another factor, or is one too many."""

from pathlib import Path

import numpy as np
import pytest
from support.module_workbenches import file_of, node
from support.workbenches import without_tally, workbench

from onnxproof.diagnosis.causes import attribute
from onnxproof.diagnosis.counterfactuals.workbench import Tried

X = {"x": np.array([[-2.0, 1.0, -0.5], [3.0, -4.0, 0.25]], np.float32)}
NUMBERS = {
    "third": np.array([0.3, 1.7, -0.4], np.float32),
    "half": np.array(0.5, np.float32),
}


@pytest.mark.parametrize("operator", ["Sub", "Mul", "Max"])
def test_another_operator_of_two_operands_is_named(operator: str, tmp_path: Path) -> None:
    wrong = file_of([node(operator, "x", "third")], X, NUMBERS)
    right = file_of([node("Add", "x", "third")], X, NUMBERS)
    tried = attribute._try_operators(workbench(tmp_path, wrong, right, X, nodes=["y"]))
    assert isinstance(tried, Tried)
    assert tried.proven
    assert without_tally(tried.evidence) == f"y is {operator}; with Add the answers are right"


def test_an_operator_elsewhere_is_not_replaced(tmp_path: Path) -> None:
    nodes = [node("Tanh", "x", output="t"), node("Sub", "t", "third")]
    right = [node("Tanh", "x", output="t"), node("Add", "t", "third")]
    bench = workbench(
        tmp_path, file_of(nodes, X, NUMBERS), file_of(right, X, NUMBERS), X, nodes=["t"]
    )
    assert attribute._try_operators(bench) is None


def test_a_node_that_is_one_too_many_is_named(tmp_path: Path) -> None:
    wrong = file_of([node("Tanh", "x", output="once"), node("Tanh", "once")], X)
    right = file_of([node("Tanh", "x")], X)
    bench = workbench(tmp_path, wrong, right, X, nodes=["y"])
    tried = attribute._mend_nodes(bench)
    assert isinstance(tried, Tried)
    assert tried.proven
    assert without_tally(tried.evidence) == "without y (Tanh) the answers are right"
    assert tried.fix is not None
    assert tried.fix.what == "take y out"
    needed = workbench(tmp_path, wrong, file_of([node("Sin", "x")], X), X, nodes=["y"])
    assert attribute._try_without_node(needed) is None
