"""The cause `clipping`: a bound that was dropped or moved."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.module_workbenches import file_of, module_workbench, node, without_line
from support.workbenches import without_tally

from onnxproof.diagnosis.causes import clipping
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

X = {"x": np.array([[-3.0, -0.5, 0.25, 2.0, 7.0]], np.float32)}
NUMBERS = {name: np.array(value, np.float32) for name, value in (("two", 2), ("low", -1))}
NOTHING = "no bound of the module mends a named node"


class Clamp(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clamp(x, -1.0, 1.0) * 2


def clamp_bench(folder: Path, nodes: list[Any], located: dict[str, str]) -> Workbench:
    file = file_of(nodes, X, NUMBERS)
    return module_workbench(folder, Clamp(), file, X, located=located)


def test_a_clamp_that_the_file_leaves_out_is_named(tmp_path: Path) -> None:
    bench = clamp_bench(tmp_path, [node("Mul", "x", "two")], {"y": "mul"})
    tried = clipping.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference) == (True, True)
    assert without_line(tried.evidence) == (
        "the module with `clamp` left out gives what the candidate gives"
    )


def test_one_bound_that_is_missing_is_named_and_put_back(tmp_path: Path) -> None:
    nodes = [node("Max", "x", "low", output="clip"), node("Mul", "clip", "two")]
    tried = clipping.test(clamp_bench(tmp_path, nodes, {"clip": "clamp"}))
    assert isinstance(tried, Tried)
    assert tried.proven
    assert without_line(tried.evidence) == (
        "with a Clip to [-1.0, 1.0] at clip the answers are right"
    )
    assert tried.fix is not None
    assert tried.fix.what == "clip clip to [-1.0, 1.0]"


def test_relu_for_relu6_is_mended_by_a_clip_in_its_place(tmp_path: Path) -> None:
    file = file_of([node("Relu", "x")], X)
    bench = module_workbench(tmp_path, torch.nn.ReLU6(), _named(file), INPUT, located=RELU6)
    tried = clipping.test(bench)
    assert isinstance(tried, Tried)
    assert tried.proven
    assert without_tally(tried.evidence).endswith(
        "with a Clip to [0.0, 6.0] at y the answers are right"
    )
    assert tried.model is not None
    assert [n.op_type for n in tried.model.graph.node] == ["Clip"]


RELU6 = {"y": "hardtanh"}
INPUT = {"input": X["x"]}


def _named(file: Any) -> Any:
    """The file with its input named as ReLU6 names it."""
    file.graph.input[0].name = "input"
    file.graph.node[0].input[0] = "input"
    return file


def test_values_that_are_only_smaller_are_no_lost_bound(tmp_path: Path) -> None:
    bench = clamp_bench(tmp_path, [node("Tanh", "x")], {"y": "mul"})
    assert clipping.test(bench) == NOTHING


def test_a_module_without_bounds_has_none_to_lose(tmp_path: Path) -> None:
    class Double(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    nodes = [node("Clip", "x", "low", "two", output="clip"), node("Mul", "clip", "two")]
    file = file_of(nodes, X, NUMBERS)
    bench = module_workbench(tmp_path, Double(), file, X, located={"clip": "mul"})
    assert clipping.test(bench) == NOTHING
