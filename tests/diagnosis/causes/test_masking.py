"""The cause `masking`: a mask that is ignored, inverted, or applied elsewhere."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto
from support.module_workbenches import file_of, module_workbench, node, without_line

from onnxproof.diagnosis.causes import masking
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(2, 4)).astype(np.float32)
MASK = np.array([[True, True, False, True], [True, False, True, False]])
INPUTS = {"x": SCORES, "mask": MASK}
EMPTY = {"x": SCORES, "mask": np.array([[True, True, False, True], [False] * 4])}
CONSTANTS = {"hide": np.array(-1e9, np.float32), "zero": np.array(0, np.float32)}
NOTHING = "no such change of the module gives what the candidate gives"


class Attend(torch.nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.masked_fill(~mask, float("-inf")), -1)


class Guarded(torch.nn.Module):
    """Rows that hide everything are zero."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(x.masked_fill(~mask, -1e9), -1)
        return weights * mask.any(-1, keepdim=True)


def read_mask(condition: str = "mask") -> list[Any]:
    """A softmax of the scores where a condition holds."""
    return [
        node("Not", "mask", output="hidden"),
        node("Where", condition, "x", "hide", output="scores"),
        node("Softmax", "scores", axis=-1),
    ]


def bench_of(
    folder: Path, module: torch.nn.Module, nodes: list[Any], inputs: Any, **options: Any
) -> Workbench:
    file = file_of(nodes, inputs, CONSTANTS)
    return module_workbench(folder, module, file, inputs, **options)


@pytest.mark.parametrize(
    ("nodes", "what"),
    [([node("Softmax", "x", axis=-1)], "ignored"), (read_mask("hidden"), "inverted")],
)
def test_a_mask_that_is_ignored_or_inverted_is_named(
    nodes: list[Any], what: str, tmp_path: Path
) -> None:
    tried = masking.test(bench_of(tmp_path, Attend(), nodes, INPUTS))
    assert isinstance(tried, Tried)
    assert tried.proven
    assert without_line(tried.evidence) == (
        f"the module with `mask` {what} gives what the candidate gives"
    )


def test_a_guard_of_rows_that_hide_everything_is_named_where_it_was_lost(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, Guarded(), read_mask(), EMPTY, located={"y": "mul"})
    tried = masking.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference) == (True, True)
    assert without_line(tried.evidence) == (
        "the module with `mul` without its mask gives what the candidate gives"
    )


def test_that_only_rows_that_hide_everything_differ_is_an_observation(tmp_path: Path) -> None:
    tried = masking.test(bench_of(tmp_path, Guarded(), read_mask(), EMPTY))
    assert isinstance(tried, Tried)
    assert not tried.proven
    assert tried.evidence == (
        "only rows of `mask` that hide everything differ: "
        "with one place open in each, the two agree"
    )


def test_a_mask_that_is_put_on_after_the_softmax_is_named(tmp_path: Path) -> None:
    nodes = [
        node("Softmax", "x", output="weights", axis=-1),
        node("Where", "mask", "weights", "zero"),
    ]
    located = {"weights": "_softmax"}
    tried = masking.test(bench_of(tmp_path, Attend(), nodes, INPUTS, located=located))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference) == (True, True)
    assert without_line(tried.evidence) == (
        "the module with `masked_fill` put after the softmax gives what the candidate gives"
    )


def test_a_triangle_that_is_moved_by_one_is_named(tmp_path: Path) -> None:
    class Causal(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tril(x) + 1

    square = {"x": RNG.normal(size=(3, 3)).astype(np.float32)}
    nodes = [node("Trilu", "x", "k", output="t", upper=0), node("Add", "t", "one")]
    constants = {"k": np.array(1), "one": np.array(1, np.float32)}
    file = file_of(nodes, square, constants)
    tried = masking.test(module_workbench(tmp_path, Causal(), file, square, located={"t": "tril"}))
    assert isinstance(tried, Tried)
    assert without_line(tried.evidence) == (
        "the module with `tril` with diagonal=1 gives what the candidate gives"
    )


def test_a_guard_against_nan_that_is_lost_is_no_mask(tmp_path: Path) -> None:
    class Fill(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.where(torch.isinf(x), torch.zeros_like(x), x) + 1

    odd = {"x": np.array([1.0, np.inf, 3.0], np.float32)}
    file = file_of([node("Add", "x", "one")], odd, {"one": np.array(1, np.float32)})
    tried = masking.test(module_workbench(tmp_path, Fill(), file, odd, located={"y": "add"}))
    assert isinstance(tried, Tried)
    assert tried.code == "nan-handling"


def test_scores_that_are_scaled_are_no_other_mask(tmp_path: Path) -> None:
    nodes = [
        node("Add", "x", "x", output="twice"),
        node("Where", "mask", "twice", "hide", output="scores"),
        node("Softmax", "scores", axis=-1),
    ]
    bench = bench_of(tmp_path, Attend(), nodes, INPUTS, located={"scores": "masked_fill"})
    assert bench.before > 0.01
    assert masking.test(bench) == NOTHING


def test_a_fault_beside_a_row_that_hides_everything_is_no_matter_of_that_row(
    tmp_path: Path,
) -> None:
    nodes = [*read_mask()[:2], node("LogSoftmax", "scores", axis=-1)]
    assert masking.test(bench_of(tmp_path, Guarded(), nodes, EMPTY)) == NOTHING


def test_an_input_that_is_no_mask_is_not_inverted(tmp_path: Path) -> None:
    class Flip(torch.nn.Module):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return ids.to(torch.float32)

    ids = {"ids": np.array([[1, 0], [0, 1]])}
    nodes = [
        node("Sub", "one", "ids", output="other"),
        node("Cast", "other", to=TensorProto.FLOAT),
    ]
    file = file_of(nodes, ids, {"one": np.array(1)})
    assert masking.test(module_workbench(tmp_path, Flip(), file, ids)) == NOTHING
