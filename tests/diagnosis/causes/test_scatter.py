"""The cause `scatter`: writes to the same place that are combined otherwise."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.module_workbenches import file_of, module_workbench, node, without_line

from onnxproof.diagnosis.causes import scatter
from onnxproof.diagnosis.counterfactuals.workbench import Tried

X = np.array([[1.0, 2.0, 4.0, 8.0]], np.float32)
INPUTS = {"x": X, "index": np.array([[0, 0, 2, 2]])}
APART = {"x": X, "index": np.array([[0, 1, 2, 3]])}
CONSTANTS = {
    "zeros": np.zeros((1, 4), np.float32),
    "nine": np.full((1, 4), -9.0, np.float32),
    "row": np.zeros(4, np.float32),
    "one": np.array(1),
    "column": np.array([4, 1]),
    "flat": np.array([4]),
}


class Sums(torch.nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x).scatter_add(1, index, x)


class Put(torch.nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        rows = index.reshape(-1)
        return torch.zeros_like(x[0]).index_put((rows,), x[0], accumulate=True)


class Largest(torch.nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return (torch.zeros_like(x) - 9).scatter_reduce(
            1, index, x, reduce="amax", include_self=False
        )


def tried_on(
    folder: Path, module: torch.nn.Module, nodes: list[Any], call: str, inputs: Any = None
) -> Tried | str:
    inputs = inputs or INPUTS
    file = file_of(nodes, inputs, CONSTANTS)
    return scatter.test(module_workbench(folder, module, file, inputs, located={"y": call}))


def test_a_sum_of_which_the_last_write_is_kept_is_named_and_put_right(tmp_path: Path) -> None:
    nodes = [node("ScatterElements", "zeros", "index", "x", axis=1)]
    tried = tried_on(tmp_path, Sums(), nodes, "scatter_add")
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference, tried.code) == (True, False, "")
    assert without_line(tried.evidence) == ("with reduction `add` at y the answers are right")
    assert tried.fix is not None
    assert tried.fix.what == "set `reduction` of y to `add`"


def test_another_reduction_of_the_module_is_named(tmp_path: Path) -> None:
    nodes = [node("ScatterElements", "nine", "index", "x", axis=1, reduction="min")]
    tried = tried_on(tmp_path, Largest(), nodes, "scatter_reduce")
    assert isinstance(tried, Tried)
    assert without_line(tried.evidence).startswith(
        "the module with `scatter_reduce` reduced by `amin` gives what the candidate gives"
    )


def test_an_index_that_is_another_is_no_other_reduction(tmp_path: Path) -> None:
    nodes = [
        node("Add", "index", "one", output="moved"),
        node("ScatterElements", "zeros", "moved", "x", axis=1, reduction="add"),
    ]
    tried = tried_on(tmp_path, Sums(), nodes, "scatter_add")
    assert tried == "no other reduction of a named node mends it"


def test_without_an_index_that_repeats_nothing_is_wrong_with_the_last_write(tmp_path: Path) -> None:
    nodes = [node("ScatterElements", "zeros", "index", "x", axis=1)]
    tried = tried_on(tmp_path, Sums(), nodes, "scatter_add", APART)
    assert tried == "no other reduction of a named node mends it"


def test_writes_that_are_added_in_the_module_and_kept_in_the_file_are_named(
    tmp_path: Path,
) -> None:
    nodes = [
        node("Reshape", "index", "column", output="rows"),
        node("Reshape", "x", "flat", output="values"),
        node("ScatterND", "row", "rows", "values"),
    ]
    tried = tried_on(tmp_path, Put(), nodes, "index_put")
    assert isinstance(tried, Tried)
    assert without_line(tried.evidence) == ("with reduction `add` at y the answers are right")
