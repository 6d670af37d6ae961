"""The judge of causes: what a counterfactual must show on how many cases before it is proven."""

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxproof.diagnosis import causes, limits
from onnxproof.diagnosis.judge import Counterfactual, Judgement, Standing, judge
from onnxproof.diagnosis.locate import Scene
from onnxproof.diagnosis.trial_cases import TrialCase, TrialCases
from onnxproof.results import Case, Signature
from onnxproof.system.deadline import Deadline

NOISE = 1e-6
LIMIT = limits.answer_limit(NOISE)
WRONG = 0.5
"""The error of the candidate on a case that fails."""
ERRORS = {"right": LIMIT / 2, "wrong": WRONG, "untried": None}
"""What a counterfactual may leave on a case; None where it can't be tried."""


def trial_case(name: str, before: float, answer: float = 1.0) -> TrialCase:
    """A case with the candidate's error; what both models answer is not asked for here."""
    anything: Any = None
    scene = Scene(
        reference=anything,
        path=Path("wrong.onnx"),
        file=anything,
        signature=Signature(inputs=(), outputs=()),
        case=Case(name=name, group="ordinary", about="", inputs={}),
        backend="ort",
        truth=[],
        dtypes=[],
        noise=NOISE,
    )
    return TrialCase(scene=scene, outputs=[np.array([answer])], before=before)


WITNESS = trial_case("witness", WRONG)


def trial_cases(failing: int, passing: int) -> TrialCases:
    """So many cases beside the witness that fail, and so many that pass."""
    return TrialCases(
        witness=WITNESS.scene,
        run=lambda inputs: None,
        _failing=[trial_case(f"failing {n}", WRONG) for n in range(failing)],
        _passing=[trial_case(f"passing {n}", LIMIT / 4) for n in range(passing)],
    )


def judged(
    failing: Sequence[str],
    passing: Sequence[str],
    witness: str = "right",
    in_reference: bool = True,
) -> tuple[Judgement, list[str]]:
    """The judgement of a counterfactual that leaves these errors, and the cases that it was run on."""
    errors = {"witness": witness}
    errors |= {f"failing {n}": outcome for n, outcome in enumerate(failing)}
    errors |= {f"passing {n}": outcome for n, outcome in enumerate(passing)}
    tried: list[str] = []

    def error(case: TrialCase) -> float | None:
        tried.append(case.scene.case.name)
        return ERRORS[errors[case.scene.case.name]]

    counterfactual = Counterfactual(error=error, in_reference=in_reference)
    return judge(counterfactual, WITNESS, trial_cases(len(failing), len(passing))), tried


OUTCOMES = st.lists(st.sampled_from(sorted(ERRORS)), max_size=5)


@given(failing=OUTCOMES, passing=OUTCOMES)
def test_proven_is_what_holds_on_enough_cases_of_both_kinds_and_fails_on_none(
    failing: list[str], passing: list[str]
) -> None:
    judgement, _ = judged(failing, passing)
    least_failing = 2 if passing else 3
    least_passing = 2 if passing else 0
    enough = failing.count("right") >= least_failing and passing.count("right") >= least_passing
    contradicted = "wrong" in failing or "wrong" in passing
    assert judgement.proven == (enough and not contradicted)


@given(failing=OUTCOMES, passing=OUTCOMES)
def test_a_passing_case_that_changes_refutes_whatever_else_holds(
    failing: list[str], passing: list[str]
) -> None:
    judgement, _ = judged(failing, [*passing, "wrong"])
    assert judgement.standing is Standing.REFUTED
    assert judgement.unchanged < judgement.passing


@given(failing=OUTCOMES, passing=st.lists(st.sampled_from(["right", "untried"]), max_size=5))
def test_failing_cases_that_are_not_explained_leave_it_likely_and_half_of_them_refute_it(
    failing: list[str], passing: list[str]
) -> None:
    judgement, _ = judged([*failing, "wrong"], passing)
    explained = 1 + failing.count("right")
    unexplained = 1 + failing.count("wrong")
    expected = Standing.LIKELY if explained > unexplained else Standing.REFUTED
    assert judgement.standing is expected


@given(failing=OUTCOMES, passing=OUTCOMES)
def test_cases_on_which_it_can_not_be_tried_are_not_counted(
    failing: list[str], passing: list[str]
) -> None:
    judgement, _ = judged(failing, passing)
    assert judgement.failing == 1 + len(failing) - failing.count("untried")
    assert judgement.explained == 1 + failing.count("right")
    assert judgement.passing == len(passing) - passing.count("untried")
    assert judgement.unchanged == passing.count("right")


@pytest.mark.parametrize("outcome", ["wrong", "untried"])
def test_what_does_not_explain_the_witness_is_refuted_without_another_try(outcome: str) -> None:
    judgement, tried = judged(["right"] * 4, ["right"] * 4, witness=outcome)
    assert judgement.standing is Standing.REFUTED
    assert judgement.explained == 0
    assert tried == ["witness"]


@given(tries=st.integers(1, 9))
def test_when_the_time_is_over_nothing_more_is_tried_and_too_few_cases_prove_nothing(
    tries: int,
) -> None:
    cases = trial_cases(4, 4)
    tried: list[str] = []

    def error(case: TrialCase) -> float:
        tried.append(case.scene.case.name)
        if len(tried) == tries:
            cases.deadline = Deadline.after(0.0)
        return 0.0

    judgement = judge(Counterfactual(error=error, in_reference=False), WITNESS, cases)
    assert len(tried) == tries
    assert judgement.cut_short
    # the witness and four others come first: with the seventh there are two that pass
    assert judgement.proven == (tries >= 7)


def test_an_error_that_only_became_smaller_is_no_explanation_of_the_witness() -> None:
    witness = trial_case("witness", LIMIT * 1.5)
    halved = Counterfactual(error=lambda case: LIMIT * 0.75, in_reference=False)
    assert judge(halved, witness, trial_cases(4, 4)).standing is Standing.REFUTED


@pytest.mark.parametrize(
    ("in_reference", "failing"), [(True, 3), (False, 4)], ids=["changed module", "mended file"]
)
def test_answers_of_nan_alone_are_no_evidence_for_a_changed_module(
    in_reference: bool, failing: int
) -> None:
    cases = trial_cases(2, 2)
    cases.others_that_fail().append(trial_case("nothing", WRONG, answer=np.nan))
    counterfactual = Counterfactual(error=lambda case: 0.0, in_reference=in_reference)
    judgement = judge(counterfactual, WITNESS, cases)
    assert judgement.proven
    assert judgement.failing == failing


@pytest.mark.parametrize("before", [0.0, NOISE * 0.9])
def test_a_witness_that_is_right_has_nothing_to_explain(before: float) -> None:
    """Whatever changes nothing agrees with it."""
    harmless = Counterfactual(error=lambda case: 0.0, in_reference=False)
    judgement = judge(harmless, trial_case("witness", before), trial_cases(4, 4))
    assert judgement.standing is Standing.REFUTED


def test_another_failing_case_may_keep_a_twentieth_of_its_error() -> None:
    def leaves(error: float) -> Judgement:
        errors: Mapping[str, float] = {"witness": 0.0, "failing 3": error}
        counterfactual = Counterfactual(
            error=lambda case: errors.get(case.scene.case.name, 0.0), in_reference=False
        )
        return judge(counterfactual, WITNESS, trial_cases(4, 4))

    assert leaves(WRONG / 21).proven
    assert not leaves(WRONG / 19).proven


@pytest.mark.parametrize(
    ("failing", "passing", "in_reference", "sentence"),
    [
        (
            ["right"] * 4,
            ["right"] * 4,
            True,
            "on 5 of 5 failing cases (500,000x noise before, 10x after)"
            " and changes none of 4 passing ones",
        ),
        (
            ["right", "right", "wrong"],
            ["right"],
            False,
            "on 3 of 4 failing cases (500,000x noise before, 10x after)"
            " and breaks none of 1 passing one",
        ),
        (
            [],
            ["right", "wrong", "wrong"],
            True,
            "on 1 of 1 failing case (500,000x noise before, 10x after)"
            " and changes 2 of 3 passing ones",
        ),
        (
            ["right"],
            [],
            True,
            "on 2 of 2 failing cases (500,000x noise before, 10x after);"
            " no case was found that passes",
        ),
    ],
)
def test_a_judgement_says_on_how_many_cases_and_what_came_of_it(
    failing: list[str], passing: list[str], in_reference: bool, sentence: str
) -> None:
    judgement, _ = judged(failing, passing, in_reference=in_reference)
    assert str(judgement) == sentence


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (2476.4, "2,476x noise before"),
        (99.0, "99x noise before"),
        (1.25, "1.2x noise before"),
        (float("inf"), "no answer, or not finite, in place of noise before"),
        (float("nan"), "no answer, or not finite, in place of noise before"),
    ],
)
def test_an_error_is_told_in_multiples_of_the_noise(before: float, words: str) -> None:
    judgement = Judgement(standing=Standing.LIKELY, before=before, after=1.0)
    assert str(judgement) == (
        f"on 1 of 1 failing case ({words}, 1x after); no case was found that passes"
    )


def test_a_judgement_that_was_cut_short_says_so() -> None:
    judgement = Judgement(standing=Standing.LIKELY, before=9.0, after=1.0, cut_short=True)
    assert str(judgement).endswith("; no time was left for further cases")


def names_in(source: str) -> set[str]:
    """Every name that a source reads, imports or takes from a module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.alias):
            names.add(node.name)
    return names


CAUSES = sorted(Path(causes.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("file", CAUSES, ids=lambda file: file.stem)
def test_no_cause_writes_its_own_judgement(file: Path) -> None:
    names = names_in(file.read_text(encoding="utf-8"))
    assert names.isdisjoint({"Judgement", "Standing"})


def test_a_cause_that_writes_its_own_judgement_would_be_seen() -> None:
    assert len(CAUSES) > 20
    assert "Judgement" in names_in("from onnxproof.diagnosis.judge import Judgement")
    assert "Standing" in names_in("x = judge.Standing.PROVEN")
