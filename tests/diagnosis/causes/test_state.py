"""The cause `state`: a file that has the module's state of another moment."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.module_workbenches import file_of, module_workbench, node
from support.workbenches import without_tally

from onnxproof.diagnosis.causes import state
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.system.deadline import Deadline

ONES = {"x": np.ones((2, 2), np.float32)}
FIVES = {"x": np.full((2, 2), 5, np.float32)}


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = 4

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return x + self.steps


class Cache(torch.nn.Module):
    """The last call's input is added."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        previous = torch.zeros_like(x) if self.last is None else self.last.to(x.dtype)
        self.last = x.clone()
        return x * 3 + previous


def bench_of(
    folder: Path, op_type: str, number: float, module: torch.nn.Module | None = None, **options: Any
) -> Workbench:
    """The file adds a number, or multiplies by one."""
    file = file_of([node(op_type, "x", "n")], ONES, {"n": np.array(number, np.float32)})
    return module_workbench(folder, module or Counter(), file, ONES, **options)


def test_a_counter_that_stood_further_is_named_with_both_numbers(tmp_path: Path) -> None:
    module = Counter()
    tried = state.test(bench_of(tmp_path, "Add", 7, module))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference) == (True, True)
    assert without_tally(tried.evidence) == (
        "the module after 2 more calls on the example (otherwise then: `steps` (6 for 4)) "
        "gives what the candidate gives"
    )
    assert module.steps == 4


def test_a_counter_that_stood_before_any_call_is_named(tmp_path: Path) -> None:
    tried = state.test(bench_of(tmp_path, "Add", 1))
    assert isinstance(tried, Tried)
    assert tried.proven
    assert without_tally(tried.evidence) == (
        "the module with its state as before any call (otherwise then: `steps` (0 for 4)) "
        "gives what the candidate gives"
    )


def test_a_cache_that_the_example_filled_is_named(tmp_path: Path) -> None:
    nodes = [node("Mul", "x", "three", output="thrice"), node("Add", "thrice", "five")]
    constants = {"three": np.array(3, np.float32), "five": np.array(5, np.float32)}
    file = file_of(nodes, ONES, constants)
    tried = state.test(module_workbench(tmp_path, Cache(), file, ONES, example=FIVES))
    assert isinstance(tried, Tried)
    assert tried.proven
    assert without_tally(tried.evidence) == (
        "the module after 1 more call on the example "
        "(otherwise then: `last` (a tensor [2, 2] for None)) gives what the candidate gives"
    )


def test_a_number_of_no_moment_is_not_explained(tmp_path: Path) -> None:
    assert state.test(bench_of(tmp_path, "Add", 7.5)) == (
        "at no other moment does the module give what the candidate gives; "
        "a forward pass changes `steps`"
    )


def test_other_cases_tell_an_accident_of_the_witness_from_its_state(tmp_path: Path) -> None:
    alone = state.test(bench_of(tmp_path, "Mul", 8))  # 1 * 8 is 1 + 7: others are made
    assert isinstance(alone, str)
    assert isinstance(state.test(bench_of(tmp_path, "Mul", 8, others=[FIVES])), str)
    kept = state.test(bench_of(tmp_path, "Add", 7, others=[FIVES]))
    assert isinstance(kept, Tried)
    assert kept.proven


def test_a_module_that_keeps_nothing_has_no_other_moment(tmp_path: Path) -> None:
    class Plain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 5

    assert state.test(bench_of(tmp_path, "Add", 7, Plain())) == (
        "a forward pass changes nothing in the module"
    )


def test_after_the_deadline_no_moment_is_tried(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, "Add", 7, deadline=Deadline.after(0.0))
    assert isinstance(state.test(bench), str)
