"""The reference's side of one case: where its noise comes from."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from support.fake_reference import FakeReference

from onnxproof.results import Case, NoiseKind
from onnxproof.verification.case_reference import LOUD_RERUNS, RERUNS, CaseReference

Array = np.ndarray[Any, Any]
X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)


def case(**other: Any) -> Case:
    return Case(name="c", group="ordinary", about="", inputs={"x": X}, **other)


def tripled(inputs: Mapping[str, Array]) -> list[Array]:
    return [inputs["x"] * inputs["x"].dtype.type(3) / inputs["x"].dtype.type(7)]


def reference_of(model: FakeReference, *, half: str | None = None) -> CaseReference:
    outputs = model.run({"x": X})
    truth = model.truth({"x": X}) or [None] * len(outputs)
    reference = CaseReference(model, case(), outputs, truth, seed=0, half=half)  # type: ignore[arg-type]
    reference.estimate()
    return reference


def test_the_noise_is_the_distance_from_the_truth_and_needs_no_rerun() -> None:
    model = FakeReference(tripled)
    reference = reference_of(model)
    distance = reference.reference[0] - tripled({"x": X.astype(np.float64)})[0]
    assert reference.noise(0).rms == pytest.approx(float(np.sqrt(np.mean(distance**2))))
    assert model.reruns == 0 and not reference.confirmed


def test_without_a_truth_the_reruns_are_the_noise() -> None:
    model = FakeReference(tripled, has_truth=False, rerun_noise=lambda amplitude, seed: 1e-3)
    reference = reference_of(model)
    assert model.reruns == RERUNS and reference.confirmed
    assert reference.noise(0).kind is NoiseKind.PERTURBED


def test_a_case_is_confirmed_once() -> None:
    model = FakeReference(tripled)
    reference = reference_of(model)
    reference.confirm()
    reference.confirm()
    assert model.reruns == RERUNS


def test_noise_that_grows_faster_than_the_amplitude_is_a_flipped_decision() -> None:
    flipping = FakeReference(tripled, rerun_noise=lambda amplitude, seed: float(amplitude > 8))
    reference = reference_of(flipping)
    assert reference.measure_flips(0) and flipping.reruns == LOUD_RERUNS
    assert reference.noise(0).worst > 0.5
    assert not reference_of(FakeReference(tripled)).measure_flips(0)


def test_half_precision_adds_its_own_noise_up_to_a_limit() -> None:
    full, half = (
        reference_of(FakeReference(tripled)),
        reference_of(FakeReference(tripled), half="float16"),
    )
    scale = float(np.sqrt(np.mean(np.square(full.reference[0], dtype=np.float64))))
    assert full.noise(0).rms < half.noise(0).rms < 0.05 * scale


def test_a_part_of_an_output_has_a_noise_of_its_own() -> None:
    reference = reference_of(FakeReference(tripled))
    keep = np.zeros(X.shape, bool)
    keep[0] = True
    part = reference.select(0, keep)
    part.estimate()
    assert part.reference[0].shape == (16,) and part.noise(0).members == 1


def test_a_truth_beyond_the_dtype_gives_way_to_what_the_module_clamps() -> None:
    def clamped(inputs: Mapping[str, Array]) -> list[Array]:
        wide = inputs["x"].astype(np.float64) * 1e45
        if inputs["x"].dtype == np.float64:
            return [wide]
        return [np.clip(wide, -3e38, 3e38).astype(np.float32)]

    reference = reference_of(FakeReference(clamped))
    assert reference.all_finite() and not reference.undecided_infinities(0)
    assert reference.noise(0).worst < 1e32
