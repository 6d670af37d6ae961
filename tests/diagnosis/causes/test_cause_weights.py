"""The cause `weights`: weights that are not the module's, and right ones in another order."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.module_workbenches import file_of, module_workbench, node, without_line
from support.workbenches import without_tally, workbench

from onnxproof.diagnosis.causes import weights
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

RNG = np.random.default_rng(0)
X = {"x": RNG.normal(size=(5, 4)).astype(np.float32)}
A, B = (RNG.normal(size=(4, 4)).astype(np.float32) for _ in range(2))
SHIFT = RNG.normal(size=4).astype(np.float32)
NOTHING = "no such change of the module gives what the candidate gives"


class Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
        self.b = torch.nn.Linear(4, 4, bias=False)
        with torch.no_grad():
            self.a.weight.copy_(torch.from_numpy(A))
            self.a.bias.copy_(torch.from_numpy(SHIFT))
            self.b.weight.copy_(torch.from_numpy(B))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.tanh(self.a(x)))


def bench_of(folder: Path, constants: dict[str, Any], last: Any = None) -> Workbench:
    """The file of the module, with these constants in the place of its own."""
    nodes = [
        node("Gemm", "x", "a.weight", "a.bias", output="first", transB=1),
        node("Tanh", "first", output="active"),
        last or node("Gemm", "active", "b.weight", transB=1),
    ]
    own = {"a.weight": A, "a.bias": SHIFT, "b.weight": B}
    file = file_of(nodes, X, {**own, **constants})
    located = {"first": "addmm", "y": "mm"}
    return module_workbench(folder, Two(), file, X, located=located)


@pytest.mark.parametrize(
    ("value", "code", "words"),
    [
        (A + 1, "weights", "`a.weight` of first differs from `a.weight`"),
        (B, "weights", "`a.weight` of first holds `b.weight`; it should be `a.weight`"),
        (
            A[[1, 0, 2, 3]],
            "weight-layout",
            "`a.weight` of first holds the numbers of `a.weight` in another order",
        ),
        (
            A.astype(np.float16).astype(np.float32),
            "precision",
            "`a.weight` of first is `a.weight` rounded to float16",
        ),
    ],
    ids=["other", "exchanged", "reordered", "rounded"],
)
def test_what_is_wrong_with_a_weight_is_named(
    value: Any, code: str, words: str, tmp_path: Path
) -> None:
    tried = weights.test(bench_of(tmp_path, {"a.weight": value}))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, code)
    assert without_tally(tried.evidence) == f"{words}; put right, the answers are right"
    assert tried.fix is not None
    assert tried.model is not None


def test_another_checkpoint_is_named_by_the_parameters_that_differ(tmp_path: Path) -> None:
    tried = weights.test(bench_of(tmp_path, {"a.weight": A + 1, "b.weight": B * 2}))
    assert isinstance(tried, Tried)
    assert tried.proven
    assert without_tally(tried.evidence) == (
        "2 initializers differ from the parameters of their names (a.weight, b.weight); "
        "with those the answers are right"
    )


def test_a_bias_that_was_dropped_is_named(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", "x", "w", output="first"),
        node("Tanh", "first", output="active"),
        node("Gemm", "active", "b.weight", transB=1),
    ]
    file = file_of(nodes, X, {"w": A.T.copy(), "b.weight": B})
    bench = module_workbench(tmp_path, Two(), file, X, located={"first": "addmm"})
    tried = weights.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference) == (True, True)
    assert without_line(tried.evidence) == (
        "the module with `addmm` without its bias gives what the candidate gives"
    )


def test_right_weights_before_a_wrong_operation_are_not_blamed(tmp_path: Path) -> None:
    scaled = node("Gemm", "active", "b.weight", transB=1, alpha=1.5)
    bench = bench_of(tmp_path, {}, scaled)
    assert bench.before > 0.1
    assert weights.test(bench) == NOTHING


def test_a_weight_that_is_only_one_of_two_faults_is_likely_or_less(tmp_path: Path) -> None:
    scaled = node("Gemm", "active", "b.weight", transB=1, alpha=1.01)
    tried = weights.test(bench_of(tmp_path, {"a.weight": A + 1}, scaled))
    assert isinstance(tried, Tried)
    assert not tried.proven
    assert tried.model is None
    assert tried.after == pytest.approx(0.01, rel=1e-3)


def test_a_reference_that_is_a_file_has_no_parameters(tmp_path: Path) -> None:
    file = file_of([node("Identity", "x")], X)
    assert weights.test(workbench(tmp_path, file, X["x"], X)) == (
        "the reference has no parameters to compare with"
    )
