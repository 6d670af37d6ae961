"""The cases on which causes are judged: made where the run has too few, answered once, and sorted by what the candidate says."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_reference import FakeReference
from support.module_workbenches import case_of, file_of, node
from support.workbenches import workbench

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.trial_cases import TrialCase, TrialCases, same_scene
from onnxproof.inputs.space import Role, Slot, Space
from onnxproof.results import Case, DimInfo
from onnxproof.system.deadline import Deadline

RNG = np.random.default_rng(0)
X = {"x": RNG.normal(size=(3, 4)).astype(np.float32)}
BELOW = {"x": -np.abs(X["x"])}


def absolute(inputs: Mapping[str, Any]) -> list[Any]:
    return [np.abs(inputs["x"])]


def cases_of(
    folder: Path, witness: Mapping[str, Any], function: Any = absolute, **options: Any
) -> TrialCases:
    """The module takes the absolute value, the file the positive part: wrong wherever one element is negative."""
    bench = workbench(
        folder,
        file_of([node("Relu", "x")], witness),
        function(witness)[0],
        witness,
        reference=FakeReference(function, example=options.pop("example", witness)),
    )
    return TrialCases(witness=bench.scene, run=lambda inputs: bench.run(inputs=inputs), **options)


def all_of(cases: TrialCases) -> list[TrialCase]:
    return [*cases.others_that_fail(), *cases.that_pass()]


def test_a_case_fails_where_the_candidate_is_wrong_and_passes_elsewhere(tmp_path: Path) -> None:
    cases = cases_of(tmp_path, BELOW, example={"x": np.abs(X["x"])})
    assert cases.can_prove
    assert len(cases.others_that_fail()) >= limits.OTHER_CASES
    assert len(cases.that_pass()) >= limits.PASSING_CASES
    for case in cases.others_that_fail():
        assert case.fails
        assert (case.inputs["x"] < 0).any()
    for case in cases.that_pass():
        assert not case.fails
        assert (case.inputs["x"] >= 0).all()


def test_the_same_cases_are_made_each_time(tmp_path: Path) -> None:
    first, second = (all_of(cases_of(tmp_path, X)) for _ in range(2))
    assert [case.scene.case.name for case in first] == [case.scene.case.name for case in second]
    for one, other in zip(first, second, strict=True):
        assert np.array_equal(one.inputs["x"], other.inputs["x"])


def test_each_case_is_answered_once_and_no_more_than_enough_are_made(tmp_path: Path) -> None:
    asked: list[Any] = []

    def count(inputs: Mapping[str, Any]) -> list[Any]:
        asked.append(inputs["x"])
        return absolute(inputs)

    cases = cases_of(tmp_path, BELOW, count, example=BELOW)  # none of them passes
    asked.clear()
    assert cases.that_pass() == []
    assert len(cases.others_that_fail()) == limits.MOST_CASES_OF_A_KIND
    assert len(asked) == 2 * limits.MOST_MADE_CASES  # in its own precision, and in float64
    cases.others_that_fail()
    assert len(asked) == 2 * limits.MOST_MADE_CASES


def test_cases_of_the_run_are_sorted_by_what_the_candidate_says_and_agreeing_ones_never_fail(
    tmp_path: Path,
) -> None:
    below, above = ([{"x": sign * np.abs(X["x"]) * k} for k in (2, 3)] for sign in (-1, 1))
    given = [case_of(inputs, name=f"given {n}") for n, inputs in enumerate([*below, *above])]
    mixed_up = cases_of(tmp_path, X, failing=given[2:], passing=given[:2])
    names = {case.scene.case.name: case.fails for case in all_of(mixed_up)}
    assert [name for name in names if name.startswith("given")] == ["given 2", "given 3"]
    assert not names["given 2"] and not names["given 3"]


def test_no_case_is_counted_twice_and_the_witness_is_none_of_them(tmp_path: Path) -> None:
    again = [case_of(X, name="the witness again"), case_of(BELOW), case_of(BELOW, name="twice")]
    cases = all_of(cases_of(tmp_path, X, failing=again))
    contents = [case.inputs["x"].tobytes() for case in cases]
    assert len(set(contents)) == len(contents)
    assert X["x"].tobytes() not in contents


def test_integers_that_no_change_moves_are_not_offered_as_further_cases(tmp_path: Path) -> None:
    one = {"x": np.array([7], np.int64)}
    bench = workbench(
        tmp_path,
        file_of([node("Add", "x", "x")], one, dtype=7),
        one["x"],
        one,
        reference=FakeReference(lambda inputs: [inputs["x"]], has_truth=False, example=one),
    )
    cases = TrialCases(witness=bench.scene, run=lambda inputs: bench.run(inputs=inputs))
    assert all_of(cases) == []
    assert not cases.can_prove


def test_cases_that_the_reference_refuses_are_left_out(tmp_path: Path) -> None:
    def positive_sum(inputs: Mapping[str, Any]) -> list[Any]:
        if inputs["x"].sum() < 0:
            raise ValueError("refused")
        return absolute(inputs)

    witness = {"x": np.array([[4.0, -1.0, -1.0, -1.0]], np.float32)}
    cases = all_of(cases_of(tmp_path, witness, positive_sum))
    assert cases
    assert all(case.inputs["x"].sum() >= 0 for case in cases)


@pytest.mark.parametrize("answers", [[], [np.zeros((0, 4), np.float32)]])
def test_a_case_without_an_answer_has_no_scene(answers: Sequence[Any], tmp_path: Path) -> None:
    scene = cases_of(tmp_path, X).witness
    silent: Any = FakeReference(lambda inputs: list(answers))
    assert same_scene(replace(scene, reference=silent), case_of(BELOW)) is None
    assert same_scene(scene, case_of(BELOW)) is not None


def test_a_file_that_refuses_a_case_fails_on_it(tmp_path: Path) -> None:
    cases = cases_of(tmp_path, X)
    cases.run = lambda inputs: None
    assert all(case.fails and case.outputs is None for case in all_of(cases))
    assert len(cases.others_that_fail()) == limits.MOST_CASES_OF_A_KIND


def test_further_cases_are_made_where_the_candidate_answers_with_nan_alone(
    tmp_path: Path,
) -> None:
    given = [case_of({"x": BELOW["x"] * k}, name=f"given {k}") for k in (2, 3)]
    cases = cases_of(tmp_path, BELOW, example={"x": np.abs(X["x"])}, failing=given)
    run = cases.run

    def run_without_numbers(inputs: Mapping[str, Any]) -> Any:
        if any(inputs is case.inputs for case in given):
            return [np.full_like(inputs["x"], np.nan)]
        return run(inputs)

    cases.run = run_without_numbers
    by_name = {case.scene.case.name: case.has_no_numbers for case in cases.others_that_fail()}
    assert [name for name, nothing in by_name.items() if nothing] == ["given 2", "given 3"]
    assert list(by_name.values()).count(False) == limits.OTHER_CASES


@pytest.mark.parametrize("special", [np.nan, np.inf, -0.0])
def test_special_values_survive_in_another_order(special: float, tmp_path: Path) -> None:
    witness = {"x": np.array([[1.0, special, 3.0, 0.5]], np.float32)}
    made = list(cases_of(tmp_path, witness)._variations())
    permuted = [case.inputs["x"] for case in made if "permuted" in case.name]
    assert len(permuted) == limits.MOST_MADE_CASES
    for array in permuted:
        assert sorted(array.view(np.int32).ravel()) == sorted(witness["x"].view(np.int32).ravel())
    places = {bytes(array.tobytes()) for array in permuted}
    assert len(places) > 1


def test_the_example_is_among_the_cases_also_in_another_order(tmp_path: Path) -> None:
    example = {"x": np.array([[1.0, 2.0, 3.0, 4.0]], np.float32)}
    passing = cases_of(tmp_path, BELOW, example=example).that_pass()
    by_name = {case.scene.case.name: case.inputs["x"] for case in passing}
    assert np.array_equal(by_name["example"], example["x"])
    permuted = by_name["example, permuted"]
    assert sorted(permuted.ravel()) == sorted(example["x"].ravel())
    assert not np.array_equal(permuted, example["x"])


def test_other_sizes_are_drawn_where_the_input_space_is_known(tmp_path: Path) -> None:
    cases = cases_of(tmp_path, X)
    (port,) = cases.witness.signature.inputs
    port = replace(port, dims=("rows", 4))
    signature = replace(
        cases.witness.signature, inputs=(port,), dims=(DimInfo(name="rows", example=3),)
    )
    cases.space = Space(
        signature=signature, slots=(Slot(info=port, role=Role.FLOAT, example=X["x"]),)
    )
    cases.witness = replace(cases.witness, signature=signature)
    rows = {case.inputs["x"].shape[0] for case in cases._draws()}
    assert {3, 4, 5} <= rows
    answered = TrialCase(scene=cases.witness, outputs=None, before=1.0)
    assert answered.sizes == {"rows": 3}


def test_where_a_single_case_passes_others_are_made_of_it(tmp_path: Path) -> None:
    """The module doubles, the file takes the positive part: the two agree on zeros alone."""
    zeros = {"x": np.zeros((3, 4), np.float32)}
    cases = cases_of(tmp_path, X, lambda inputs: [inputs["x"] * 2], passing=[case_of(zeros)])
    (port,) = cases.witness.signature.inputs
    signature = replace(cases.witness.signature, inputs=(replace(port, dims=("rows", 4)),))
    cases.witness = replace(cases.witness, signature=signature)
    passing = {case.scene.case.name: case.inputs["x"].shape for case in cases.that_pass()}
    assert passing == {"other": (3, 4), "other, twice along rows": (6, 4)}


def test_after_the_deadline_no_case_is_answered(tmp_path: Path) -> None:
    cases = cases_of(tmp_path, X, deadline=Deadline.after(0.0), failing=[case_of(BELOW)])
    assert all_of(cases) == []


def test_the_noise_of_a_case_is_its_own_and_no_less_than_asked_for(tmp_path: Path) -> None:
    def rough(inputs: Mapping[str, Any]) -> list[Any]:
        step = 1.01 if inputs["x"].dtype == np.float32 else 1.0
        return [inputs["x"] * step]

    scene = cases_of(tmp_path, X, rough).witness
    other: Case = case_of(BELOW)
    measured = same_scene(scene, other)
    assert measured is not None
    assert measured.noise == pytest.approx(0.01, rel=1e-3)
    floor = same_scene(scene, other, 0.5)
    assert floor is not None
    assert floor.noise == 0.5
    assert measured.case is other
    assert np.array_equal(measured.truth[0], BELOW["x"].astype(np.float64))
