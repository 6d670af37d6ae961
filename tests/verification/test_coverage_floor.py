"""The least that must be compared, and how far the budget bends for it."""

import numpy as np
import pytest

from onnxproof.results import Case, Domain
from onnxproof.verification.coverage_floor import Floor


def case(name: str, *, ordinary: bool = True, domain: Domain | None = None, **sizes: int) -> Case:
    return Case(
        name=name,
        group="ordinary",
        about="",
        inputs={"x": np.zeros(1)},
        sizes=sizes,
        ordinary=ordinary,
        domain=domain,
    )


EXAMPLE, OTHER = case("example", batch=2, length=5), case("ordinary-1", batch=2, length=5)
LARGER, EMPTY = (
    case("all-odd", batch=7, length=7),
    case("batch=0", domain=Domain.EMPTY, batch=0, length=5),
)


def test_the_example_other_values_and_two_sizes_of_each_dim() -> None:
    floor = Floor(("batch", "length"))
    assert floor.missing == (
        "the example",
        "other values than the example's",
        "a second size of `batch`",
        "a second size of `length`",
    )
    floor.take(EXAMPLE)
    assert floor.missing == (
        "other values than the example's",
        "a second size of `batch`",
        "a second size of `length`",
    )
    floor.take(OTHER)
    assert floor.missing == ("a second size of `batch`", "a second size of `length`")
    floor.take(EMPTY)
    assert len(floor.missing) == 2  # nothing was compared there
    floor.take(LARGER)
    assert floor.missing == ()
    assert floor.findings(complete=False, budget_s=1.0) == []


def test_a_case_that_brings_nothing_gives_way_when_time_is_short() -> None:
    floor = Floor(("batch",))
    floor.take(EXAMPLE)
    floor.take(OTHER)
    again = case("ordinary-2", batch=2)
    assert not floor.skips(again, left_s=10.0, case_s=1.0)
    assert floor.skips(again, left_s=1.0, case_s=1.0)
    assert not floor.skips(LARGER, left_s=1.0, case_s=1.0)
    assert floor.skipped == 1


@pytest.mark.parametrize(
    ("over", "budget", "dear", "beyond"),
    [
        (1.9, 1.0, 0.1, False),
        (2.1, 1.0, 0.1, True),
        (11.0, 60.0, 0.1, False),
        (12.5, 60.0, 0.1, True),
        (4.0, 1.0, 5.0, False),
        (6.0, 1.0, 5.0, True),
    ],
)
def test_the_budget_bends_and_does_not_break(
    over: float, budget: float, dear: float, *, beyond: bool
) -> None:
    floor = Floor(("batch",))
    floor.take(EXAMPLE)
    assert floor.beyond(over, budget, dear) is beyond


def test_nothing_is_waited_for_once_the_floor_is_reached() -> None:
    floor = Floor(())
    floor.take(EXAMPLE)
    floor.take(OTHER)
    assert floor.beyond(0.0, 60.0, 0.1)


def test_what_is_missing_takes_the_verdict_away_unless_the_reference_refuses_it() -> None:
    floor = Floor(("batch",))
    floor.take(EXAMPLE)
    (late,) = floor.findings(complete=False, budget_s=1.5)
    assert (
        late.voids
        and late.what
        == "not enough was compared: other values than the example's, a second size of `batch` are missing"
    )
    assert "the budget of 1.5 s ended first" in late.help
    (refused,) = floor.findings(complete=True, budget_s=1.5)
    assert refused.voids and "the reference refuses other values" in refused.help
    floor.take(OTHER)
    (sizes,) = floor.findings(complete=True, budget_s=1.5)
    assert (sizes.code, sizes.voids) == ("one-size", False)


def test_who_chooses_cases_needs_no_floor() -> None:
    assert Floor(("batch",), chosen=True).missing == ()
