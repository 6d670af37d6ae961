"""What a module keeps between calls, and how it is reset."""

from typing import Any

import pytest
import torch
from torch import nn

from onnxproof.diagnosis.counterfactuals.module_state import (
    describe_differences,
    dotted_name,
    is_same_data,
    module_state,
    reset_state,
    state_differences,
)


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("count", torch.tensor(3))
        self.hidden = torch.ones(2)
        self.ready = True
        self.rate = 0.5


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.seen: dict[str, list[int]] = {"a": [1]}


def test_buffers_parameters_and_attributes_are_named_by_their_submodule() -> None:
    state = module_state(Outer())
    own = {place for place in state if not place[1].startswith("_")}
    assert own >= {("inner", name) for name in ("weight", "mean", "count", "hidden", "ready")}
    assert ("", "seen") in own
    assert ("", "training") not in own
    assert ("", "inner") not in own
    assert dotted_name(("inner", "mean")) == "inner.mean"
    assert dotted_name(("", "seen")) == "seen"


def test_modes_are_no_state_and_differences_are_found_in_submodules_and_containers() -> None:
    start = Outer().train()
    assert list(state_differences(start, Outer().eval())) == []
    other = Outer()
    other.inner.hidden = torch.tensor([1.0, 2.0])
    other.seen["a"].append(2)
    assert [place for place, _, _ in state_differences(start, other)] == [
        ("", "seen"),
        ("inner", "hidden"),
    ]
    assert describe_differences(start, other) == (
        "`seen` (1 items for 1 items)",
        "`inner.hidden` (a tensor [2] for a tensor [2])",
    )


def test_an_attribute_that_only_one_of_the_two_has_differs() -> None:
    other = Outer()
    other.cache = 4
    assert describe_differences(Outer(), other) == ("`cache` (4 for None)",)
    assert describe_differences(other, Outer()) == ("`cache` (None for 4)",)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64), False),
        (torch.zeros(2), torch.zeros(1, 2), False),
        (True, 1, False),
        ([1], (1,), False),
        ([1, 2], [1], False),
        ([[[[[1]]]]], [[[[[2]]]]], True),  # too deep to be looked at
        ([[[1]]], [[[2]]], False),
        (None, None, True),
    ],
)
def test_data_is_compared_by_type_and_as_deep_as_it_is_looked_at(
    one: Any, other: Any, same: bool
) -> None:
    assert is_same_data(one, other) is same


def test_flags_fractions_and_buffers_of_a_submodule_are_reset() -> None:
    module = Outer()
    for name in ("ready", "rate", "count", "mean", "hidden"):
        reset_state(module, ("inner", name), 2)
    inner: Any = module.inner
    assert inner.ready is False
    assert (inner.rate, type(inner.rate)) == (2.0, float)
    assert (inner.count.item(), inner.count.dtype) == (2, torch.int64)
    assert inner.mean.tolist() == [0.0, 0.0]
    assert inner.hidden.tolist() == [0.0, 0.0]
    reset_state(module, ("inner", "hidden"), 0)
    assert inner.hidden is None
    reset_state(module, ("inner", "mean"), 0)
    assert inner.mean.tolist() == [0.0, 0.0]  # a registered buffer stays a tensor
