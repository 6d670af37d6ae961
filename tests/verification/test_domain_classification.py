"""To which odd domain a difference belongs, on answers that are written by hand."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from support.fake_reference import FakeReference

from onnxproof.options import Policy
from onnxproof.results import Case, Domain, Gap, InputInfo, OutputInfo, Signature, Status
from onnxproof.verification.case_reference import CaseReference, ReferenceRefused
from onnxproof.verification.domain_classification import DomainClassifier, Rerun
from onnxproof.verification.gap_measurement import Comparison, GapMeasurer

Array = np.ndarray[Any, Any]
X = np.linspace(1, 2, 12, dtype=np.float32).reshape(3, 4)
SIGNATURE = Signature(
    inputs=(InputInfo(name="x", dtype="float32", shape=(3, 4), dims=(3, 4), onnx_name="x"),),
    outputs=(OutputInfo(name="y", dtype="float32", shape=(3, 4), onnx_name="y"),),
)


class Answering:
    """A candidate that answers by a function."""

    backend = "fake"

    def __init__(self, function: Any) -> None:
        self._function = function

    def run(self, inputs: Mapping[str, Array], *, apart: bool = False) -> list[Array]:
        return [self._function(inputs["x"])]


def doubled(inputs: Mapping[str, Array]) -> list[Array]:
    return [inputs["x"] * inputs["x"].dtype.type(2)]


def classify(model: FakeReference, candidate: Answering, case: Case, **other: Any) -> Gap:
    measurer = GapMeasurer(SIGNATURE, Policy(), None)

    def answer(asked: Case) -> CaseReference:
        outputs = model.run(asked.inputs)
        truth = model.truth(asked.inputs) or [None]
        reference = CaseReference(model, asked, outputs, truth, seed=0, half=None)  # type: ignore[arg-type]
        reference.estimate()
        return reference

    def comparison(reference: CaseReference) -> Comparison:
        output = candidate.run(reference.case.inputs)[0]
        return Comparison(reference=reference, candidate=candidate, place=0, output=output)  # type: ignore[arg-type]

    def compare(reference: CaseReference, _: Any) -> list[Gap]:
        return [measurer.measure(comparison(reference))]

    classifier = DomainClassifier(
        measurer=measurer,
        policy=Policy(),
        rerun=Rerun(answer=answer, compare=compare),
        half=None,
        masks=None,
        **({"decides": False, "orders": False} | other),
    )
    whole = comparison(answer(case))
    return classifier.classify(measurer.measure(whole), whole)


def case(array: Array = X, **other: Any) -> Case:
    return Case(name="c", group="ordinary", about="", inputs={"x": array}, **other)


def test_a_difference_of_finite_numbers_has_no_domain() -> None:
    assert classify(FakeReference(doubled), Answering(lambda x: x * 3), case()).domain is None


def test_an_empty_answer_of_another_shape_is_of_the_empty_domain() -> None:
    empty = classify(FakeReference(doubled), Answering(lambda x: x.reshape(-1)), case(X[:0]))
    assert empty.domain is Domain.EMPTY


def test_nan_that_is_handled_otherwise_is_of_the_input_s_domain() -> None:
    odd = X.copy()
    odd[0, 0] = np.nan
    asked = case(odd, domain=Domain.NAN)
    spread = classify(FakeReference(doubled), Answering(lambda x: x * 2 + np.nanmax(x) * 0), asked)
    assert spread.domain is Domain.NAN


def test_a_fault_is_not_excused_by_nan_beside_it() -> None:
    odd = X.copy()
    odd[0, 0] = np.nan
    wrong = classify(
        FakeReference(doubled), Answering(lambda x: x * 3), case(odd, domain=Domain.NAN)
    )
    assert wrong.domain is None


def test_a_case_that_the_reference_refuses_without_nan_keeps_its_domain() -> None:
    def needs_nan(inputs: Mapping[str, Array]) -> list[Array]:
        if not np.isnan(inputs["x"]).any():
            raise ReferenceRefused("no NaN")
        return doubled(inputs)

    odd = X.copy()
    odd[0, 0] = np.nan
    kept = classify(
        FakeReference(needs_nan), Answering(lambda x: x * 3), case(odd, domain=Domain.NAN)
    )
    assert kept.domain is Domain.NAN


def test_an_answer_that_ties_explain_is_a_tie() -> None:
    other_order = FakeReference(doubled, ties=lambda inputs: [inputs["x"][:, ::-1] * np.float32(2)])
    turned = Answering(lambda x: x[:, ::-1] * np.float32(2))
    assert classify(other_order, turned, case(), orders=True).domain is Domain.TIES
    assert classify(other_order, turned, case(), orders=False).domain is None


def test_noise_of_a_flipped_decision_lets_the_gap_pass() -> None:
    flipping = FakeReference(doubled, rerun_noise=lambda amplitude, seed: 4.0 * (amplitude > 2))
    moved = Answering(lambda x: x * 2 + np.float32(1))
    passed = classify(flipping, moved, case(), decides=True)
    assert passed.confirmed and passed.domain is None and passed.noise_ratio < 1
    assert classify(flipping, moved, case(), decides=False).noise_ratio > 1e3


def test_the_measurer_learns_the_usual_size_of_an_output() -> None:
    measurer = GapMeasurer(SIGNATURE, Policy(), None)
    gap = Gap(
        case="c", group="ordinary", backend="b", output="y", status=Status.COMPARED, compared=1
    )
    for scale in (1.0, 5.0, 3.0):
        measurer.learn_scale(replace(gap, scale=scale))
    assert measurer._scales.median("y") == 3.0 and measurer._scales.median("z") == 0.0


def test_a_huge_usual_size_excuses_nothing_that_the_tolerance_would_not() -> None:
    """Outputs of 1e18 must not hide what happens at 1."""
    measurer = GapMeasurer(SIGNATURE, Policy(), None)
    for gap in ordinary_gaps(1e18):
        measurer.learn_scale(gap)
    wrong = measured(measurer, lambda x: x * 2 + np.float32(0.01))
    assert wrong.noise_ratio > Policy().noise_limit and not np.isclose(wrong.noise, 0.01)
    right = measured(measurer, lambda x: x * 2)
    assert right.noise_ratio < 1


def ordinary_gaps(scale: float) -> list[Gap]:
    gap = Gap(
        case="c", group="ordinary", backend="b", output="y", status=Status.COMPARED, compared=1
    )
    return [replace(gap, scale=scale)] * 3


def measured(measurer: GapMeasurer, function: Any) -> Gap:
    reference = CaseReference(
        FakeReference(doubled),  # type: ignore[arg-type]
        case(),
        doubled(case().inputs),
        doubled({"x": X.astype(np.float64)}),
        seed=0,
        half=None,
    )
    reference.estimate()
    candidate = Answering(function)
    output = candidate.run({"x": X})[0]
    comparison = Comparison(reference=reference, candidate=candidate, place=0, output=output)  # type: ignore[arg-type]
    return measurer.measure(comparison)
