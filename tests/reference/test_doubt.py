"""When the truth is examined: how often, and what is done where there is no time for it."""

from typing import Any

import numpy as np
import pytest

from onnxproof.reference.doubt import Doubts
from onnxproof.reference.rounding_check import NotExamined
from onnxproof.results import Case, NoiseKind

Array = np.ndarray[Any, Any]


class Chaotic:
    """A reference whose roundings move its answer by a hundredth, and that counts its re-runs."""

    kind = NoiseKind.DOUBLE
    draws = False

    def __init__(self) -> None:
        self.reruns = 0

    def rerun(self, inputs: Any, seed: int, *, amplitude: float = 1.0, move: bool = False) -> Any:
        self.reruns += 1
        noise = np.random.default_rng(seed).standard_normal(64) * 0.01 * amplitude
        return [(np.ones(64) + noise).astype(np.float32)]

    def run_again(self, inputs: Any, seed: int | None = None) -> list[Array]:
        return [np.ones(64, np.float32)]

    def with_gradients(self, inputs: Any) -> None:
        return None


def case(name: str, group: str = "shapes") -> Case:
    return Case(name=name, group=group, about="", inputs={})


def check(doubts: Doubts, name: str, error: float, group: str = "shapes") -> bool:
    """One case whose truth is this far from its answer."""
    reference = [np.ones(64, np.float32)]
    return doubts.check(case(name, group), reference, [np.full(64, 1.0 + error)], pass_s=1.0)


def test_what_was_rounding_once_is_not_examined_again() -> None:
    model = Chaotic()
    doubts = Doubts(model, ["y"])  # type: ignore[arg-type]
    assert check(doubts, "a", 0.02)
    examined = model.reruns
    assert examined >= 2
    assert check(doubts, "b", 0.015) and model.reruns == examined
    assert check(doubts, "c", 0.03) and model.reruns > examined  # farther than the first


def test_every_group_of_cases_is_examined() -> None:
    model = Chaotic()
    doubts = Doubts(model, ["y"])  # type: ignore[arg-type]
    check(doubts, "a", 0.02)
    examined = model.reruns
    check(doubts, "b", 0.02, "masks")
    assert model.reruns > examined


def test_a_wrong_truth_is_not_believed_however_often_others_were() -> None:
    doubts = Doubts(Chaotic(), ["y"])  # type: ignore[arg-type]
    assert check(doubts, "a", 0.02)
    assert not check(doubts, "b", 5.0)
    assert [finding.code for finding in doubts.findings()] == ["truth-not-believed"]


def test_without_time_a_case_that_is_farther_than_others_is_left_out() -> None:
    model = Chaotic()
    time_is_left = True
    doubts = Doubts(model, ["y"], lambda count, each_s: time_is_left)  # type: ignore[arg-type]
    assert check(doubts, "a", 0.02)
    time_is_left = False
    assert check(doubts, "b", 0.02)
    with pytest.raises(
        NotExamined, match="no time was left to tell rounding from a wrong truth in output `y`"
    ):
        check(doubts, "c", 5.0)
    assert doubts.findings() == []


def test_without_time_the_first_is_examined_all_the_same() -> None:
    model = Chaotic()
    doubts = Doubts(model, ["y"], lambda count, each_s: False)  # type: ignore[arg-type]
    assert check(doubts, "a", 0.02)
    assert model.reruns >= 2


@pytest.mark.parametrize(("answer", "truth", "examined"), [(2e-44, 1.9e-44, 0), (1e-30, 9e-30, 1)])
def test_numbers_below_the_smallest_of_their_dtype_are_no_reason_to_doubt(
    answer: float, truth: float, examined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Chaotic()
    reference = [np.full(64, answer, np.float32)]  # below 1e-38, float32 has few bits left
    monkeypatch.setattr(model, "run_again", lambda inputs, seed: reference)
    doubts = Doubts(model, ["y"])  # type: ignore[arg-type]
    doubts.check(case("a"), reference, [np.full(64, truth)], pass_s=1.0)
    assert bool(model.reruns) is bool(examined)
