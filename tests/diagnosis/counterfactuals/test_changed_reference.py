"""Calls of a module changed one by one."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from onnxproof.diagnosis.counterfactuals.changed_reference import (
    _ChangedCalls,
    call_instead,
    describe_call,
    skip_call,
    with_arguments,
)
from onnxproof.diagnosis.counterfactuals.suspected_calls import (
    calls_from_same_line,
    suspected_calls,
)
from onnxproof.results import Source

LINE = Source(file="model.py", line=3, text="return x")


def entry(place: int, op: str, *inputs: int, **changed: Any) -> Any:
    ordinary = {"call": place, "outer": None, "source": None}
    return SimpleNamespace(place=place, op=op, inputs=inputs, **{**ordinary, **changed})


def workbench(entries: list[Any], *, matched: set[int], located: int | None) -> Any:
    nodes = [] if located is None else ["node"]
    return SimpleNamespace(
        located=SimpleNamespace(traced_values=entries, matched=matched),
        nodes=nodes,
        counterpart=lambda node: entries[located] if located is not None else None,
        location=SimpleNamespace(source=None),
    )


def test_a_call_is_changed_by_its_number() -> None:
    x = torch.tensor([4.0, 9.0])
    with torch.no_grad(), _ChangedCalls({1: skip_call()}):
        y = torch.sqrt(x) + 1
    assert y.tolist() == [2.0, 3.0]


def test_arguments_are_changed_by_name_and_functions_by_another() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    with torch.no_grad(), _ChangedCalls({0: with_arguments(dim=[0])}):
        assert torch.sum(x, dim=[1]).tolist() == [4.0, 6.0]
    with torch.no_grad(), _ChangedCalls({0: call_instead(torch.sub)}):
        assert torch.add(x, x).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_a_norm_without_statistics_is_refused() -> None:
    change = with_arguments(training=False)
    func = torch.ops.aten.native_batch_norm.default
    args = (torch.ones(2, 3), None, None, None, None, True, 0.1, 1e-5)
    with pytest.raises(ValueError, match="a norm without statistics can't use them"):
        change(func, args, {})


def test_suspected_calls_start_at_the_located_node_and_its_producers() -> None:
    entries = [
        entry(0, "input x", call=-1),
        entry(1, "mul", 0),
        entry(2, "view", 1),
        entry(3, "add", 2, source=LINE),
        entry(4, "relu", 3, source=LINE),
        entry(5, "exp", 0),
    ]
    bench = workbench(entries, matched={1}, located=3)
    assert [e.op for e in suspected_calls(bench)] == ["add", "mul", "relu", "exp"]
    assert [e.op for e in suspected_calls(bench, views=True)] == ["add", "view", "relu"]


def test_without_a_located_call_the_first_missing_values_are_suspected() -> None:
    entries = [entry(0, "input x", call=-1), entry(1, "mul", 0), entry(2, "add", 1)]
    bench = workbench(entries, matched=set(), located=None)
    assert [e.op for e in suspected_calls(bench)] == ["mul"]


def test_a_part_of_an_operation_stands_for_the_whole() -> None:
    entries = [entry(0, "softmax"), entry(1, "exp", outer=0, call=-1)]
    bench = workbench(entries, matched={0}, located=1)
    assert [e.op for e in suspected_calls(bench)] == ["softmax"]


def test_calls_of_one_line_are_found_together() -> None:
    entries = [
        entry(0, "add", source=LINE),
        entry(1, "add", source=LINE),
        entry(2, "add"),
        entry(3, "mul", source=LINE),
        entry(4, "add", source=LINE, outer=0),
    ]
    bench = workbench(entries, matched=set(), located=None)
    assert calls_from_same_line(bench, entries[0]) == [0, 1]


def test_a_call_is_described_with_its_line() -> None:
    assert describe_call(entry(0, "add")) == "`add`"
    assert describe_call(entry(0, "add", source=LINE)) == "`add` (model.py:3: `return x`)"
