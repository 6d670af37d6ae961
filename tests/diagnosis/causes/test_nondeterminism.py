"""The cause `nondeterminism`: a file that answers otherwise each time."""

from pathlib import Path
from typing import Any

import numpy as np
from support.module_workbenches import file_of, node
from support.workbenches import without_tally, workbench

from onnxproof.diagnosis.causes import nondeterminism
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

X = {"x": np.ones((8, 8), np.float32)}


def bench_of(folder: Path, noise: float, right: Any) -> Workbench:
    """The file adds normal noise of this size to its input."""
    nodes = [node("RandomNormalLike", "x", output="draw", scale=noise), node("Add", "x", "draw")]
    return workbench(folder, file_of(nodes, X), right, X)


def test_the_node_that_draws_random_numbers_is_named(tmp_path: Path) -> None:
    tried = nondeterminism.test(bench_of(tmp_path, 0.5, file_of([node("Identity", "x")], X)))
    assert isinstance(tried, Tried)
    assert tried.proven
    assert tried.evidence.startswith("two runs on the same input differ by ")
    assert without_tally(tried.evidence).endswith("; draw draws random numbers; it is so")


def test_noise_that_is_much_smaller_than_the_difference_is_not_the_cause(tmp_path: Path) -> None:
    five_times = file_of([node("Mul", "x", "five")], X, {"five": np.array(5, np.float32)})
    tried = nondeterminism.test(bench_of(tmp_path, 0.001, five_times))
    assert isinstance(tried, Tried)
    assert not tried.proven


def test_a_file_that_answers_the_same_twice_is_not_random(tmp_path: Path) -> None:
    file = file_of([node("Add", "x", "x")], X)
    assert nondeterminism.test(workbench(tmp_path, file, X["x"], X)) == "two runs give the same"


def test_a_file_that_does_not_run_can_not_be_asked_twice(tmp_path: Path) -> None:
    file = file_of([node("NoSuchOperator", "x")], X)
    bench = workbench(tmp_path, file, X["x"], X)
    assert nondeterminism.test(bench) == "the candidate can't be asked a second time"
