"""Measuring: one planted element is found where it is, nothing is broadcast, and nothing is rounded to agree."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnxproof.numerics.measure import (
    FLOOR,
    GapLabel,
    Noise,
    eps,
    is_float,
    measure,
    noise_of,
    pool,
)
from onnxproof.options import Policy
from onnxproof.results import Gap, NoiseKind, Status, Verdict
from onnxproof.results.gaps import RTOL_GRID
from onnxproof.results.judging import judge_gap

Array = np.ndarray[Any, Any]
LABEL = GapLabel(case="c", group="g", backend="b", output="y")
SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=5)
FLOATS = hnp.arrays(np.float32, SHAPES, elements=st.floats(-1e3, 1e3, width=32))
settings.register_profile("onnxproof", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("onnxproof")


def gap(
    reference: Array,
    candidate: Array | None,
    truth: Array | None = None,
    noise: Noise | None = None,
    **other: Any,
) -> Gap:
    """One measurement; the noise is the reference's own distance from the truth."""
    if noise is None:
        noise = noise_of(
            reference,
            reference.astype(np.float64) if truth is None and is_float(reference) else truth,
            NoiseKind.DOUBLE,
        )
    return measure(
        LABEL, reference=reference, truth=truth, candidate=candidate, noise=noise, **other
    )


@given(reference=FLOATS, data=st.data(), amount=st.floats(2.0, 1e6))
def test_one_planted_element_is_found_at_its_index(
    reference: Array, data: st.DataObject, amount: float
) -> None:
    place = tuple(data.draw(st.integers(0, size - 1)) for size in reference.shape)
    candidate = reference.copy()
    candidate[place] += np.float32(amount)
    assume(candidate[place] != reference[place])
    found = gap(reference, candidate)
    assert (
        found.worst == place
        and found.status is Status.COMPARED
        and found.compared == reference.size
    )
    assert found.max_abs == abs(float(candidate[place]) - float(reference[place]))
    assert found.rms == pytest.approx(found.max_abs / math.sqrt(reference.size))
    assert judge_gap(found, Policy()) is Verdict.DIVERGED


@given(
    dtype=st.sampled_from([np.int64, np.int32, np.uint8, np.bool_]), shape=SHAPES, data=st.data()
)
def test_one_planted_integer_is_found_at_its_index(
    dtype: Any, shape: tuple[int, ...], data: st.DataObject
) -> None:
    reference = np.zeros(shape, dtype)
    place = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
    candidate = reference.copy()
    candidate[place] = 1
    found = gap(reference, candidate, truth=reference)
    assert (found.worst, found.mismatches, found.compared) == (place, 1, reference.size)
    assert found.noise_ratio == math.inf and judge_gap(found, Policy()) is Verdict.DIVERGED


@given(first=SHAPES, second=SHAPES, dtype=st.sampled_from([np.float32, np.int64, np.complex64]))
def test_shapes_are_never_broadcast(
    first: tuple[int, ...], second: tuple[int, ...], dtype: Any
) -> None:
    assume(first != second)
    found = gap(np.ones(first, dtype), np.ones(second, dtype), truth=np.ones(first, dtype))
    assert found.status is Status.SHAPE and found.compared == 0
    assert found.detail == f"reference {list(first)}, candidate {list(second)}"
    assert judge_gap(found, Policy()) is Verdict.DIVERGED


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((3, 1), (3, 4)),
        ((3, 4), (3, 1)),
        ((), (1,)),
        ((1,), ()),
        ((0,), (1,)),
        ((4,), (1, 4)),
        ((0, 3), (0, 4)),
    ],
)
def test_shapes_that_would_broadcast_are_a_shape_gap(
    first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    assert gap(np.ones(first, np.float32), np.ones(second, np.float32)).status is Status.SHAPE


@given(base=st.integers(2**53, 2**62), step=st.sampled_from([-1, 1]))
def test_integers_are_exact_beyond_two_to_the_53(base: int, step: int) -> None:
    reference = np.array([5, base], np.int64)
    found = gap(reference, reference + np.array([0, step]), truth=reference)
    assert (found.mismatches, found.worst) == (1, (1,)) and judge_gap(
        found, Policy()
    ) is Verdict.DIVERGED


@given(reference=hnp.arrays(np.uint64, 4, elements=st.integers(2**63, 2**64 - 2)))
def test_unsigned_integers_beyond_two_to_the_63_are_exact(reference: Array) -> None:
    assert gap(reference, reference.copy(), truth=reference).mismatches == 0
    assert gap(reference, reference + np.uint64(1), truth=reference).mismatches == 4


@given(reference=FLOATS, data=st.data(), odd=st.sampled_from([np.nan, np.inf, -np.inf]))
def test_a_finite_reference_against_what_is_not_finite_is_lost(
    reference: Array, data: st.DataObject, odd: float
) -> None:
    hit = data.draw(hnp.arrays(np.bool_, reference.shape))
    assume(hit.any())
    found = gap(reference, np.where(hit, np.float32(odd), reference))
    assert (found.lost, found.odd, found.compared) == (int(hit.sum()), 0, int((~hit).sum()))
    assert judge_gap(found, Policy()) is Verdict.DIVERGED


_PATTERNS = [
    (np.nan, 1.0, 1),
    (np.inf, 1.0, 1),
    (-np.inf, np.inf, 1),
    (np.nan, np.inf, 1),
    (np.inf, np.nan, 1),
    (np.nan, np.nan, 0),
    (np.inf, np.inf, 0),
    (-np.inf, -np.inf, 0),
]


@pytest.mark.parametrize(("reference", "candidate", "odd"), _PATTERNS)
def test_patterns_of_nan_and_infinity_are_counted(
    reference: float, candidate: float, odd: int
) -> None:
    left, right = (
        np.array([1, reference, reference], np.float32),
        np.array([1, candidate, candidate], np.float32),
    )
    found = gap(left, right)
    assert (found.odd, found.lost, found.compared) == (2 * odd, 0, 1)
    assert judge_gap(found, Policy(strict_domains=True)) is (
        Verdict.DIVERGED if odd else Verdict.FAITHFUL
    )
    assert judge_gap(found, Policy()) is Verdict.FAITHFUL


def test_an_element_beside_a_nan_is_still_measured() -> None:
    found = gap(np.array([np.nan, 1, 2], np.float32), np.array([np.nan, 1, 3], np.float32))
    assert (
        found.worst == (2,)
        and found.max_abs == 1
        and found.compared == 2
        and judge_gap(found, Policy()) is Verdict.DIVERGED
    )


def test_a_reference_of_nothing_but_nan_that_agrees_compares_no_element() -> None:
    found = gap(np.full(3, np.nan, np.float32), np.full(3, np.nan, np.float32))
    assert (found.compared, found.odd, found.lost) == (0, 0, 0) and judge_gap(
        found, Policy()
    ) is Verdict.VACUOUS


@given(
    shape=hnp.array_shapes(min_dims=1, max_dims=3, max_side=3),
    data=st.data(),
    dtype=st.sampled_from([np.float32, np.int64, np.bool_, np.complex64]),
)
def test_empty_is_empty_and_never_faithful(
    shape: tuple[int, ...], data: st.DataObject, dtype: Any
) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    array = np.zeros((*shape[:axis], 0, *shape[axis + 1 :]), dtype)
    found = gap(array, array.copy(), truth=array)
    assert (
        found.status is Status.EMPTY
        and found.compared == 0
        and judge_gap(found, Policy()) is Verdict.VACUOUS
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("float32", "float64"),
        ("float32", "float16"),
        ("int64", "int32"),
        ("int64", "float32"),
        ("float32", "int64"),
        ("bool", "int64"),
        ("bfloat16", "float16"),
    ],
)
def test_another_dtype_with_right_values_is_a_dtype_gap(first: str, second: str) -> None:
    reference = np.array([0, 1, 1, 0]).astype(np.dtype(first))
    found = gap(reference, reference.astype(np.dtype(second)), truth=reference)
    assert (
        found.status is Status.DTYPE
        and found.detail == f"reference {first}, candidate {second}"
        and found.compared == 4
    )
    assert judge_gap(found, Policy()) is Verdict.DRIFT


def test_an_empty_output_of_another_dtype_is_a_dtype_gap() -> None:
    found = gap(np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float64))
    assert found.status is Status.DTYPE and found.detail == "reference float32, candidate float64"


def test_another_dtype_does_not_hide_wrong_values() -> None:
    found = gap(np.array([1, 2], np.float32), np.array([1, 3], np.float64))
    assert (
        found.status is Status.DTYPE
        and found.worst == (1,)
        and judge_gap(found, Policy()) is Verdict.DIVERGED
    )


def test_no_output_at_all_is_missing() -> None:
    assert gap(np.ones(2, np.float32), None).status is Status.MISSING


@given(
    truth=hnp.arrays(np.float64, 12, elements=st.floats(-100, 100)),
    seed=st.integers(0, 99),
    k=st.integers(-20, 20),
)
def test_scaling_everything_by_a_power_of_two_changes_no_ratio(
    truth: Array, seed: int, k: int
) -> None:
    truth = np.where(np.abs(truth) < 1e-6, 0, truth)
    rng = np.random.default_rng(seed)
    reference = truth.astype(np.float32)
    candidate = (truth + 1e-4 * rng.standard_normal(12)).astype(np.float32)
    one = gap(reference, candidate, truth, floor_scale=3.0)
    factor = 2.0**k
    two = gap(
        reference * np.float32(factor),
        candidate * np.float32(factor),
        truth * factor,
        floor_scale=3.0 * factor,
    )
    assert (two.noise_ratio, two.worst_ratio, two.worst) == (
        one.noise_ratio,
        one.worst_ratio,
        one.worst,
    )
    assert (two.rms, two.noise, two.scale) == (
        one.rms * factor,
        one.noise * factor,
        one.scale * factor,
    )
    assert two.cosine == pytest.approx(one.cosine, rel=1e-12) and two.sqnr_db == pytest.approx(
        one.sqnr_db, rel=1e-12
    )


@given(truth=hnp.arrays(np.float64, SHAPES, elements=st.floats(-1e6, 1e6)))
def test_a_candidate_equal_to_the_reference_is_within_one_noise(truth: Array) -> None:
    reference = truth.astype(np.float32)
    found = gap(reference, reference.copy(), truth)
    assert (
        found.noise_ratio <= 1
        and found.worst_ratio <= 1
        and found.max_abs == 0
        and found.allowance == 0
    )
    assert judge_gap(found, Policy()) is Verdict.FAITHFUL


@given(reference=FLOATS)
def test_noise_is_never_below_a_share_of_an_ulp(reference: Array) -> None:
    """The reference is exact by luck; a candidate one ulp away must not look infinitely wrong."""
    found = gap(
        reference,
        np.nextafter(reference, np.float32(np.inf)),
        reference.astype(np.float64),
        floor_scale=1e3,
    )
    assert (
        found.noise >= FLOOR * eps(np.dtype(np.float32)) * 1e3
        and found.noise_ratio < Policy().noise_limit
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_an_array_of_several_pieces_measures_the_same_as_at_once(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((3, 50_000)) * 40
    reference = truth.astype(dtype)
    candidate = reference.copy()
    candidate[2, 30_001] += 7  # in the third piece
    candidate[1, 5] = 0
    found = gap(reference, candidate, truth)
    r, c = reference.astype(np.float64), candidate.astype(np.float64)
    error, difference = c - truth, np.abs(c - r)
    assert found.compared == truth.size
    assert found.worst == np.unravel_index(np.argmax(np.abs(error)), truth.shape)
    assert found.rms == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-9)
    assert found.scale == pytest.approx(np.sqrt(np.mean(truth**2)), rel=1e-9)
    floor = FLOOR * eps(np.dtype(dtype)) * found.scale
    noise = max(np.sqrt(np.mean((r - truth) ** 2)), floor)
    assert found.noise == pytest.approx(noise, rel=1e-9)
    assert found.max_abs == difference.max()
    assert found.max_rel == pytest.approx((difference / np.abs(r)).max(), rel=1e-9)
    cosine = (c * truth).sum() / np.sqrt((c * c).sum() * (truth * truth).sum())
    assert found.cosine == pytest.approx(cosine, rel=1e-9)
    needed = [max(0.0, (difference - rtol * np.abs(r)).max()) for rtol in RTOL_GRID]
    assert found.atol_needed == pytest.approx(needed, rel=1e-9)


def test_what_is_not_finite_is_counted_in_every_piece() -> None:
    reference = np.ones(200_000, np.float32)
    candidate = reference.copy()
    candidate[[10, 70_000, 199_999]] = np.nan
    reference[[11, 140_000]] = np.inf
    found = gap(reference, candidate)
    assert (found.lost, found.odd, found.compared) == (3, 2, 199_995)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_held_to_its_own_noise(dtype: Any) -> None:
    """The same absolute error is nothing for a half-precision model and a fault for a float32 one."""
    truth = np.random.default_rng(1).standard_normal((4, 64))
    half = truth.astype(dtype)
    other = (truth + 0.3 * eps(np.dtype(dtype)) * np.abs(truth)).astype(dtype)
    healthy = gap(half, other, truth)
    assert (
        is_float(half)
        and healthy.compared == 256
        and healthy.noise_ratio < 4
        and judge_gap(healthy, Policy()) is Verdict.FAITHFUL
    )
    wide = gap(truth.astype(np.float32), other.astype(np.float32), truth)
    assert wide.noise_ratio > 100 and judge_gap(wide, Policy()) is not Verdict.FAITHFUL


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_planted_element(dtype: Any) -> None:
    reference = np.random.default_rng(1).standard_normal((4, 64)).astype(dtype)
    candidate = reference.copy()
    candidate[2, 9] = 50
    found = gap(reference, candidate)
    assert found.worst == (2, 9) and judge_gap(found, Policy()) is Verdict.DIVERGED


@given(shape=SHAPES, data=st.data(), imaginary=st.booleans())
def test_complex_outputs_are_measured_in_both_parts(
    shape: tuple[int, ...], data: st.DataObject, imaginary: bool
) -> None:
    rng = np.random.default_rng(0)
    reference = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)
    place = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
    candidate = reference.copy()
    candidate[place] += 3j if imaginary else 3
    found = gap(reference, candidate, truth=reference.astype(np.complex128))
    assert found.compared == 2 * reference.size and found.worst == (*place, int(imaginary))
    assert judge_gap(found, Policy()) is Verdict.DIVERGED
    healthy = gap(
        reference,
        reference.copy(),
        truth=reference.astype(np.complex128),
        noise=Noise(kind=NoiseKind.DOUBLE),
    )
    assert healthy.max_abs == 0 and judge_gap(healthy, Policy()) is Verdict.FAITHFUL


def test_the_noise_of_a_complex_output_is_estimated() -> None:
    truth = np.exp(1j * np.linspace(0, 6, 50)) / 3
    noise = noise_of(truth.astype(np.complex64), truth, NoiseKind.DOUBLE)
    assert noise.kind is NoiseKind.DOUBLE and 0 < noise.rms < 1e-7


@given(
    reference=FLOATS,
    seed=st.integers(0, 999),
    size=st.sampled_from([1e-6, 1e-4, 1e-3, 1e-1]),
    atol=st.sampled_from([1e-6, 1e-4, 1e-2]),
    rtol=st.sampled_from([1e-5, 1e-3]),
)
def test_the_allowance_says_what_allclose_says(
    reference: Array, seed: int, size: float, atol: float, rtol: float
) -> None:
    candidate = (
        reference + size * np.random.default_rng(seed).standard_normal(reference.shape)
    ).astype(np.float32)
    found = gap(reference, candidate, atol=atol, rtol=rtol)
    assume(abs(found.allowance - 1) > 1e-9)
    wide, other = reference.astype(np.float64), candidate.astype(np.float64)
    assert (found.allowance > 1) == (not np.allclose(other, wide, atol=atol, rtol=rtol))


@given(reference=FLOATS, seed=st.integers(0, 999), size=st.sampled_from([1e-6, 1e-3, 1e-1, 10.0]))
def test_atol_needed_is_the_smallest_that_passes_for_each_rtol(
    reference: Array, seed: int, size: float
) -> None:
    candidate = (
        reference + size * np.random.default_rng(seed).standard_normal(reference.shape)
    ).astype(np.float32)
    found = gap(reference, candidate)
    assert len(found.atol_needed) == len(RTOL_GRID)
    wide, other = reference.astype(np.float64), candidate.astype(np.float64)
    for rtol, atol in zip(RTOL_GRID, found.atol_needed, strict=True):
        assert np.allclose(other, wide, atol=atol * (1 + 1e-9) + 1e-15, rtol=rtol)
        if atol > 1e-12:
            assert not np.allclose(other, wide, atol=atol * (1 - 1e-6), rtol=rtol)


def test_index_outputs_are_held_to_the_references_own_flips() -> None:
    """An arg-max that float64 decides otherwise in the same rows is a near-tie; one elsewhere is a fault."""
    reference = np.zeros(100, np.int64)
    truth = reference.copy()
    truth[:4] = 1
    noise = noise_of(reference, truth, NoiseKind.DOUBLE)
    assert noise.flips == 4 and noise.unstable is not None and noise.kind is NoiseKind.EXACT
    near = reference.copy()
    near[:3] = 1
    found = gap(reference, near, truth, noise)
    assert (found.mismatches, found.unstable, found.noise_kind) == (
        3,
        3,
        NoiseKind.EXACT,
    ) and judge_gap(found, Policy()) is Verdict.FAITHFUL
    far = reference.copy()
    far[40:60] = 1
    found = gap(reference, far, truth, noise)
    assert (found.mismatches, found.unstable) == (20, 0) and judge_gap(
        found, Policy()
    ) is Verdict.DIVERGED
    assert (
        judge_gap(gap(reference, near, reference), Policy()) is Verdict.DIVERGED
    )  # the reference decides all of them


def test_a_noise_of_another_shape_is_no_noise() -> None:
    assert noise_of(np.ones(3, np.float32), np.ones((3, 1)), NoiseKind.DOUBLE).members == 0
    assert noise_of(np.ones(3, np.float32), None, NoiseKind.PERTURBED).members == 0


@given(
    parts=st.lists(
        st.tuples(st.just(0.0) | st.floats(1e-100, 10), st.floats(0, 10)), min_size=1, max_size=6
    )
)
def test_a_pool_lies_between_its_members(parts: list[tuple[float, float]]) -> None:
    noises = [Noise(rms=rms, worst=worst, kind=NoiseKind.DOUBLE, members=1) for rms, worst in parts]
    together = pool(noises)
    assert (
        min(n.rms for n in noises) * (1 - 1e-12)
        <= together.rms
        <= max(n.rms for n in noises) * (1 + 1e-12)
    )
    assert (
        together.worst == max(n.worst for n in noises)
        and together.members == len(noises)
        and together.kind is NoiseKind.DOUBLE
    )


def test_a_pool_of_nothing_estimates_nothing() -> None:
    assert pool([]).kind is NoiseKind.NONE and pool([]).members == 0


@given(masks=st.lists(hnp.arrays(np.bool_, 6), min_size=1, max_size=4))
def test_a_pool_unites_what_is_not_decided(masks: list[Array]) -> None:
    together = pool(
        [Noise(flips=float(m.sum()), unstable=m, kind=NoiseKind.EXACT, members=1) for m in masks]
    )
    assert together.unstable is not None and np.array_equal(
        together.unstable, np.any(masks, axis=0)
    )
    assert together.flips == pytest.approx(sum(m.sum() for m in masks) / len(masks))


def test_scores_report_the_best_class_and_the_order() -> None:
    reference = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]], np.float32)
    found = gap(reference, reference[:, ::-1].copy())
    assert found.top1 == 0.5 and found.rank is not None and found.rank < 1
    assert gap(reference, reference.copy()).top1 == 1.0


def test_a_float64_module_has_a_floor_of_its_own() -> None:
    """Reference and truth are one run there: an error of a few ulps of float64 is rounding, one of 1e-12 is not."""
    reference = np.random.default_rng(0).standard_normal(64)
    near, far = reference * (1 + 2e-16), reference + 1e-12
    assert judge_gap(gap(reference, near, reference), Policy()) is Verdict.FAITHFUL
    assert judge_gap(gap(reference, far, reference), Policy()) is Verdict.DRIFT


def test_an_error_that_dwarfs_the_signal_has_finite_decibels() -> None:
    from onnxproof.numerics.measure import _decibels

    assert _decibels(1e-30, 1e300) == pytest.approx(-6600)
