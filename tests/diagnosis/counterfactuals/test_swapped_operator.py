"""Another operator, or another order of operands, in the place of a node."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.module_workbenches import file_of, node
from support.workbenches import without_tally, workbench

from onnxproof.diagnosis.counterfactuals.swapped_operator import (
    try_exchanged_operands,
    try_exchanged_pieces,
    try_other_operators,
)
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

X = np.array([[-1.6, 0.55, 2.7], [1.3, -0.2, 3.1]], np.float32)
ROUNDINGS = [("Round", "Floor", "Ceil")]


def bench_of(
    folder: Path, nodes: list[Any], right: Any, located: list[str], **inputs: Any
) -> Workbench:
    """The workbench of these nodes; `right` is the answer, or the nodes that give it for any input."""
    fed = {"x": X, **inputs}
    expected = file_of(right, fed) if isinstance(right, list) else np.asarray(right)
    return workbench(folder, file_of(nodes, fed), expected, fed, nodes=located)


def test_the_operator_that_is_right_is_named(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, [node("Floor", "x")], [node("Ceil", "x")], ["y"])
    tried = try_other_operators(bench, ROUNDINGS)
    assert isinstance(tried, Tried)
    assert tried.proven
    assert without_tally(tried.evidence) == "y is Floor; with Ceil the answers are right"
    assert tried.fix is not None
    assert tried.fix.what == "make y a Ceil"
    assert tried.model is not None
    assert tried.model.graph.node[0].op_type == "Ceil"
    assert bench.model.graph.node[0].op_type == "Floor"


def test_a_node_of_the_family_that_was_not_located_is_tried_too(tmp_path: Path) -> None:
    nodes = [node("Floor", "x", output="whole"), node("Neg", "whole")]
    right = [node("Round", "x", output="whole"), node("Neg", "whole")]
    tried = try_other_operators(bench_of(tmp_path, nodes, right, ["y"]), ROUNDINGS)
    assert isinstance(tried, Tried)
    assert tried.proven
    assert without_tally(tried.evidence) == "whole is Floor; with Round the answers are right"


def test_an_operator_of_another_family_is_never_put_in(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, [node("Floor", "x")], np.abs(X), ["y"])
    families = [*ROUNDINGS, ("Abs", "Neg")]
    assert try_other_operators(bench, families) == (
        "no other operator of the family mends a named node"
    )


@pytest.mark.parametrize("keep", [True, False])
def test_attributes_are_kept_only_where_the_family_shares_them(keep: bool, tmp_path: Path) -> None:
    nodes = [node("ReduceMax", "x", keepdims=0)]
    bench = bench_of(tmp_path, nodes, [node("ReduceMin", "x", keepdims=0)], ["y"])
    tried = try_other_operators(bench, [("ReduceMax", "ReduceMin")], keep_attributes=keep)
    assert isinstance(tried, Tried) is keep  # keepdims=1 gives another shape


def test_the_branches_of_a_selection_are_exchanged_and_not_its_condition(tmp_path: Path) -> None:
    mask = np.array([True, False, True])
    nodes = [node("Where", "mask", "x", "z")]
    inputs = {"mask": mask, "z": X + 7}
    bench = bench_of(tmp_path, nodes, np.where(mask, X + 7, X), ["y"], **inputs)
    exchanged = try_exchanged_operands(bench, ["Where"])
    assert exchanged is not None
    located, model = exchanged
    assert located.name == "y"
    assert list(model.graph.node[0].input) == ["mask", "z", "x"]
    assert bench.distance(model) < 1e-6


def test_any_two_operands_of_a_concatenation_are_exchanged(tmp_path: Path) -> None:
    nodes = [node("Concat", "x", "a", "b", axis=0)]
    bench = bench_of(tmp_path, nodes, np.concatenate([X + 2, X + 1, X]), ["y"], a=X + 1, b=X + 2)
    exchanged = try_exchanged_operands(bench, ["Concat"])
    assert exchanged is not None
    assert list(exchanged[1].graph.node[0].input) == ["b", "a", "x"]


def test_operands_of_other_operators_and_of_other_nodes_stay(tmp_path: Path) -> None:
    nodes = [node("Sub", "x", "z")]
    truth = np.ones((2, 3), np.float32)
    assert try_exchanged_operands(bench_of(tmp_path, nodes, truth, ["y"], z=X - 1), ["Sub"]) is None
    right = bench_of(tmp_path, nodes, truth, ["y"], z=X + 1)
    assert try_exchanged_operands(right, ["Div"]) is None
    elsewhere = bench_of(tmp_path, nodes, truth, [], z=X + 1)
    assert try_exchanged_operands(elsewhere, ["Sub"]) is None
    assert try_exchanged_operands(right, ["Sub"]) is not None


def test_a_single_operand_is_not_exchanged(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, [node("Neg", "x")], X, ["y"])
    assert try_exchanged_operands(bench, ["Neg"]) is None


def test_pieces_of_a_split_that_are_taken_for_each_other(tmp_path: Path) -> None:
    def gates(*pieces: str) -> list[Any]:
        split = node("Split", "x", output="pieces", axis=1, num_outputs=3)
        del split.output[:]
        split.output.extend(pieces)
        return [
            split,
            node("Tanh", "b", output="t"),
            node("Sub", "t", "c", output="s"),
            node("Mul", "s", "a"),
        ]

    bench = bench_of(tmp_path, gates("a", "c", "b"), gates("a", "b", "c"), ["t"])
    tried = try_exchanged_pieces(bench)
    assert isinstance(tried, Tried)
    assert tried.proven
    assert "with pieces 1 and 2 of" in tried.evidence
    assert try_exchanged_pieces(bench_of(tmp_path, [node("Floor", "x")], X + 1, ["y"])) is None
