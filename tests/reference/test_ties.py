"""Ties: what float32 chose among equals is followed in float64, where hardly anything is equal."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from onnxproof.reference.ties import BreakTies, FollowChoices

WIDE = torch.tensor(
    [[1.0, 1.0 + 1e-9, 0.0, 1.0 + 2e-9], [5.0, 7.0 + 1e-9, 7.0, 7.0 - 1e-9]], dtype=torch.float64
)
"""Ties in float32, and three different numbers in float64."""
NARROW = WIDE.float()

CHOICES: dict[str, Callable[[Tensor], Any]] = {
    "argmax": lambda x: x.argmax(-1),
    "argmax, keepdim": lambda x: x.argmax(-1, keepdim=True),
    "argmax of all": lambda x: x.argmax(),
    "argmin": lambda x: (-x).argmin(0),
    "max": lambda x: x.max(-1),
    "max, keepdim": lambda x: x.max(-1, keepdim=True),
    "min": lambda x: (-x).min(1),
    "topk": lambda x: x.topk(2, dim=-1),
    "topk, smallest": lambda x: (-x).topk(3, largest=False),
    "sort": lambda x: x.sort(-1, descending=True),
    "stable sort": lambda x: torch.sort(x, dim=-1, stable=True),
    "sort of columns": lambda x: x.t().sort(0),
}


def indices_of(answer: Any) -> Tensor:
    return answer if isinstance(answer, Tensor) else answer[1]


def values_of(answer: Any) -> Tensor | None:
    return None if isinstance(answer, Tensor) else answer[0]


def test_the_values_are_tied_in_float32_alone() -> None:
    """Without this the tests below say nothing."""
    assert len(set(NARROW[0].tolist())) == 2 and len(set(WIDE[0].tolist())) == 4
    assert len(set(NARROW[1].tolist())) == 2 and len(set(WIDE[1].tolist())) == 4


@pytest.mark.parametrize("rule", ["first", "last"])
@pytest.mark.parametrize("name", CHOICES)
def test_float64_takes_what_float32_took(name: str, rule: str) -> None:
    choose = CHOICES[name]
    with BreakTies(rule) as ties:
        narrow = choose(NARROW)
    with FollowChoices(ties.choices):
        wide = choose(WIDE)
    assert torch.equal(indices_of(narrow), indices_of(wide))
    narrow_values, wide_values = values_of(narrow), values_of(wide)
    if narrow_values is not None and wide_values is not None:
        assert wide_values.dtype is torch.float64
        assert wide_values.shape == narrow_values.shape
        assert torch.equal(wide_values.float(), narrow_values)


@pytest.mark.parametrize("name", ["argmax", "max", "topk", "sort"])
def test_float64_by_itself_takes_another(name: str) -> None:
    """What following is good for: one of the two rules takes what float64 does not."""
    alone = indices_of(CHOICES[name](WIDE))
    taken = []
    for rule in ("first", "last"):
        with BreakTies(rule):
            taken.append(indices_of(CHOICES[name](NARROW)))
    assert not all(torch.equal(alone, indices) for indices in taken)


def test_the_values_are_those_at_the_indices_that_are_followed() -> None:
    with FollowChoices([torch.tensor([3, 0])]):
        values, indices = WIDE.max(-1)
    assert indices.tolist() == [3, 0]
    assert values.tolist() == [WIDE[0, 3].item(), WIDE[1, 0].item()]


def test_choices_are_followed_in_the_order_of_calls() -> None:
    with BreakTies("last") as ties:
        first = (NARROW.argmax(-1), NARROW.topk(1).indices, NARROW[0, 0].sort().indices)
    with FollowChoices(ties.choices):
        second = (WIDE.argmax(-1), WIDE.topk(1).indices, WIDE[0, 0].sort().indices)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_run_that_chooses_more_often_is_no_run_of_the_same_path() -> None:
    with BreakTies("first") as ties:
        NARROW.argmax(-1)
    with (
        pytest.raises(RuntimeError, match="chooses more often"),
        FollowChoices(ties.choices),
    ):
        WIDE.argmax(-1)
        WIDE.argmax(-1)
