"""Which cases are kept: the witness of a fault, a few that differ, and the nearest of those that do not."""

from typing import Any

import numpy as np

from onnxproof.options import Policy
from onnxproof.results import Case, Domain, Gap, NoiseKind, Note, Status
from onnxproof.verification.case_runner import Outcome
from onnxproof.verification.observations import LARGE, Observations, elements


def case(name: str, *, group: str = "ordinary", size: int = 4, **other: Any) -> Case:
    inputs = {"x": np.zeros(size, np.float32)}
    ordinary = group == "ordinary"
    return Case(name=name, group=group, about="", inputs=inputs, ordinary=ordinary, **other)


def gap(name: str, ratio: float, **other: Any) -> Gap:
    settings = {"noise": 1e-7, "scale": 1.0, "rms": ratio * 1e-7, "allowance": ratio, **other}
    return Gap(
        case=name,
        group="ordinary",
        backend="ort",
        output="y",
        status=Status.COMPARED,
        compared=4,
        noise_kind=NoiseKind.DOUBLE,
        noise_ratio=ratio,
        worst_ratio=ratio,
        **settings,
    )


def add(observed: Observations, one: Case, ratio: float, **other: Any) -> float:
    return observed.add(one, Outcome(gaps=[gap(one.name, ratio, **other)]))


def test_the_worst_ordinary_case_is_the_witness() -> None:
    observed = Observations(Policy())
    add(observed, case("healthy"), 1.0)
    add(observed, case("first"), 100.0)
    add(observed, case("extreme", group="floats"), 1e5)
    add(observed, case("worst"), 1000.0)
    assert observed.witness is not None and observed.witness.name == "worst"
    assert [one.name for one in observed.differing] == ["first", "extreme", "worst"]
    assert observed.faulty and observed.diverged == 3


def test_a_case_that_is_large_or_of_an_odd_domain_is_no_plain_one() -> None:
    observed = Observations(Policy())
    large = case("large", size=LARGE)
    add(observed, large, 1e6)
    assert elements(large) == LARGE and observed.differing == []
    add(observed, case("small"), 100.0)
    assert observed.witness is not None and observed.witness.name == "small"


def test_the_nearest_cases_are_those_below_the_limit_with_the_largest_ratios() -> None:
    observed = Observations(Policy())
    for number in range(6):
        add(observed, case(f"c{number}"), float(number))
    add(observed, case("extreme", group="floats"), 11.0)
    assert [one.name for _, one in observed.nearest] == ["c5", "c4", "c3", "c2"]
    assert not observed.faulty and observed.witness is None


def test_a_bias_makes_a_doubtful_case_the_witness() -> None:
    observed = Observations(Policy())
    doubtful = case("doubtful")
    add(observed, doubtful, 5.0)
    observed.add_bias(doubtful, {"y": 3.0})
    assert observed.witness is doubtful and observed.gaps[0].bias == 3.0


def test_ties_are_noted_before_a_nan_that_was_put_in() -> None:
    observed = Observations(Policy())

    def noted(name: str, domain: Domain, put_in: Domain | None) -> None:
        note = Note(
            case=name, backend="ort", output="y", domain=domain, what="", reference="", candidate=""
        )
        one = case(name, domain=put_in)
        observed.add(one, Outcome(gaps=[gap(name, 0.0, domain=domain)], notes=[note]))

    noted("nan", Domain.NAN, Domain.NAN)
    noted("ties", Domain.TIES, None)
    noted("later", Domain.TIES, None)
    assert observed.noted is not None and observed.noted.name == "ties"
    assert len(list(observed.first_notes())) == 3


def test_only_the_first_notes_of_a_kind_are_kept() -> None:
    observed = Observations(Policy())
    for number in range(5):
        note = Note(
            case=f"c{number}",
            backend="ort",
            output="y",
            domain=Domain.NAN,
            what="",
            reference="",
            candidate="",
        )
        observed.notes.append(note)
    assert [note.case for note in observed.first_notes()] == ["c0", "c1", "c2"]
