"""Judging: a policy is data, the worst gap decides, and nothing compared is never a pass."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onnxproof.errors import VerdictError
from onnxproof.numerics.measure import GapLabel, measure, noise_of
from onnxproof.options import Policy
from onnxproof.results import (
    Domain,
    Finding,
    Gap,
    NoiseKind,
    Note,
    Signature,
    Status,
    Verdict,
    Void,
)
from onnxproof.results.gaps import RTOL_GRID
from onnxproof.results.judging import beyond_noise, judge, judge_gap, severity, within_tolerance
from onnxproof.results.proof import Proof

settings.register_profile("onnxproof", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("onnxproof")
RANK = {
    Verdict.VACUOUS: -1,
    Verdict.FAITHFUL: 0,
    Verdict.DRIFT: 1,
    Verdict.DIVERGED: 2,
    Verdict.ERROR: 3,
}
POSITIVE = st.floats(0, 1e9)
DOMAINS = st.sampled_from(Domain)


def a_gap(**changed: Any) -> Gap:
    """A healthy gap of ten elements, with these changes."""
    return Gap(
        **{
            "case": "c",
            "group": "g",
            "backend": "ort",
            "output": "y",
            "status": Status.COMPARED,
            "compared": 10,
            "noise_kind": NoiseKind.DOUBLE,
            "noise_ratio": 1.0,
            "worst_ratio": 1.0,
            **changed,
        }
    )


@st.composite
def gaps(draw: st.DrawFn) -> Gap:
    """Any gap that measuring could give."""
    return a_gap(
        status=draw(st.sampled_from(Status)),
        compared=draw(st.integers(0, 100)),
        noise_ratio=draw(POSITIVE),
        worst_ratio=draw(POSITIVE),
        allowance=draw(st.floats(0, 10)),
        bias=draw(st.none() | POSITIVE),
        lost=draw(st.integers(0, 2)),
        odd=draw(st.integers(0, 2)),
        domain=draw(st.none() | DOMAINS),
        noise_kind=draw(st.sampled_from(NoiseKind)),
        mismatches=draw(st.integers(0, 2)),
        unstable=draw(st.integers(0, 2)),
    )


def a_proof(found: list[Gap], policy: Policy | None = None, **other: Any) -> Proof:
    policy = policy or Policy()
    return Proof(
        verdict=judge(
            found, policy, notes=other.get("notes", ()), findings=other.get("findings", ())
        ),
        subject="Net",
        candidate="m.onnx",
        backends=("ort",),
        gaps=tuple(found),
        signature=Signature(inputs=(), outputs=()),
        policy=policy,
        **other,
    )


@given(found=gaps(), more=st.floats(1, 1e6))
def test_a_larger_ratio_never_gives_a_better_verdict(found: Gap, more: float) -> None:
    worse = replace(
        found, noise_ratio=found.noise_ratio * more, worst_ratio=found.worst_ratio * more
    )
    assert RANK[judge_gap(worse, Policy())] >= RANK[judge_gap(found, Policy())]
    assert severity(worse, Policy()) >= severity(found, Policy())


@given(found=gaps(), more=st.floats(1, 1e3))
def test_a_wider_limit_never_gives_a_worse_verdict(found: Gap, more: float) -> None:
    wide = Policy(noise_limit=Policy().noise_limit * more, worst_limit=Policy().worst_limit * more)
    assert RANK[judge_gap(found, wide)] <= RANK[judge_gap(found, Policy())]


@given(several=st.lists(gaps(), max_size=5), one=gaps(), strict=st.booleans())
def test_one_more_gap_never_gives_a_better_verdict(
    several: list[Gap], one: Gap, strict: bool
) -> None:
    policy = Policy(strict_domains=strict)
    assert RANK[judge([*several, one], policy)] >= RANK[judge(several, policy)]


@given(several=st.lists(gaps(), min_size=1, max_size=5))
def test_the_worst_gap_decides_in_any_order(several: list[Gap]) -> None:
    verdict = judge(several, Policy())
    assert verdict is judge(several[::-1], Policy()) and RANK[verdict] == max(
        RANK[judge_gap(g, Policy())] for g in several
    )


@given(found=gaps())
def test_drift_is_beyond_noise_and_within_tolerance(found: Gap) -> None:
    found = replace(
        found, status=Status.COMPARED, lost=0, domain=None, compared=10, noise_kind=NoiseKind.DOUBLE
    )
    beyond, within = beyond_noise(found, Policy()), within_tolerance(found, Policy())
    wanted = Verdict.FAITHFUL if not beyond else Verdict.DRIFT if within else Verdict.DIVERGED
    assert judge_gap(found, Policy()) is wanted


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "faithful"),
        ({"noise_ratio": 11.9}, "faithful"),
        ({"noise_ratio": 12.1}, "drift"),
        ({"worst_ratio": 24.1}, "drift"),
        ({"noise_ratio": 12.1, "allowance": 1.1}, "diverged"),
        ({"worst_ratio": 24.1, "allowance": 1.1}, "diverged"),
        ({"noise_ratio": 4.0, "bias": 1.9}, "faithful"),
        ({"noise_ratio": 4.0, "bias": 2.1}, "drift"),
        ({"noise_ratio": 4.0, "bias": 2.1, "allowance": 1.1}, "diverged"),
        (
            {"noise_ratio": 2.0, "allowance": 1e6},
            "faithful",
        ),  # deep models exceed 1e-4 by rounding alone
        ({"lost": 1}, "diverged"),
        ({"odd": 1}, "faithful"),
        ({"status": Status.SHAPE}, "diverged"),
        ({"status": Status.MISSING}, "diverged"),
        ({"status": Status.REFUSED}, "diverged"),
        ({"status": Status.DTYPE}, "drift"),
        ({"status": Status.EMPTY, "compared": 0}, "vacuous"),
        ({"compared": 0}, "vacuous"),
        ({"noise_kind": NoiseKind.NONE}, "error"),
        (
            {
                "noise_kind": NoiseKind.EXACT,
                "mismatches": 1,
                "noise_ratio": math.inf,
                "allowance": math.inf,
            },
            "diverged",
        ),
        (
            {
                "noise_kind": NoiseKind.EXACT,
                "mismatches": 3,
                "unstable": 3,
                "noise_ratio": math.inf,
                "allowance": math.inf,
            },
            "faithful",
        ),
    ],
)
def test_one_gap_and_its_verdict(changed: dict[str, Any], verdict: str) -> None:
    assert judge_gap(a_gap(**changed), Policy(noise_limit=12.0, worst_limit=24.0)).value == verdict


@given(count=st.integers(0, 5))
def test_nothing_compared_is_vacuous(count: int) -> None:
    empty = [a_gap(status=Status.EMPTY, compared=0)] * count
    assert judge(empty, Policy()) is Verdict.VACUOUS and not a_proof(empty).passed
    assert judge([*empty, a_gap()], Policy()) is Verdict.FAITHFUL


@pytest.mark.parametrize("status", [Status.EMPTY, Status.COMPARED, Status.REFUSED])
def test_gaps_that_compared_nothing_in_an_odd_domain_prove_nothing(status: Status) -> None:
    """A proof whose only case was an empty batch has compared no number at all."""
    assert (
        judge([a_gap(status=status, compared=0, domain=Domain.EMPTY)], Policy()) is Verdict.VACUOUS
    )


@given(found=gaps(), strict=st.booleans())
def test_without_an_estimate_of_the_noise_nothing_is_faithful(found: Gap, strict: bool) -> None:
    assume(found.status is not Status.EMPTY)
    blind = replace(found, noise_kind=NoiseKind.NONE, domain=None, compared=5)
    assert judge_gap(blind, Policy(strict_domains=strict)) is not Verdict.FAITHFUL
    assert judge([blind, a_gap()], Policy(strict_domains=strict)) is not Verdict.FAITHFUL


@given(several=st.lists(gaps(), min_size=1, max_size=4), domain=DOMAINS)
def test_a_gap_in_an_odd_domain_changes_nothing_unless_the_policy_says_so(
    several: list[Gap], domain: Domain
) -> None:
    assume(judge(several, Policy()) is not Verdict.VACUOUS)
    odd = a_gap(noise_ratio=1e9, worst_ratio=1e9, allowance=1e9, domain=domain)
    assert judge([*several, odd], Policy()) is judge(several, Policy())
    assert RANK[judge([*several, odd], Policy(strict_domains=True))] >= RANK[Verdict.DIVERGED]


@given(domain=DOMAINS)
def test_a_note_counts_only_under_strict_domains(domain: Domain) -> None:
    note = Note(
        domain=domain,
        case="c",
        backend="ort",
        output="y",
        what="w",
        reference="[0]=nan",
        candidate="[0]=0.0",
    )
    assert judge([a_gap()], Policy(), notes=[note]) is Verdict.FAITHFUL
    assert judge([a_gap()], Policy(strict_domains=True), notes=[note]) is Verdict.DIVERGED


def test_a_finding_counts_only_when_it_says_so() -> None:
    assert (
        judge([a_gap()], Policy(), findings=[Finding(code="dim-fixed", what="w")])
        is Verdict.FAITHFUL
    )
    assert (
        judge([a_gap()], Policy(), findings=[Finding(code="dim-fixed", what="w", counts=True)])
        is Verdict.DIVERGED
    )


@given(
    several=st.lists(gaps(), max_size=5),
    limit=st.floats(1, 1e6),
    strict=st.booleans(),
    domains=st.booleans(),
)
def test_a_stored_proof_is_judged_again_without_a_run(
    several: list[Gap], limit: float, strict: bool, domains: bool
) -> None:
    policy = Policy(noise_limit=limit, worst_limit=2 * limit, strict=strict, strict_domains=domains)
    proof = a_proof(several)
    assume(proof.verdict is not Verdict.ERROR)  # an ERROR stays one: see below
    again = proof.judged(policy)
    assert (
        again.verdict is judge(several, policy)
        and again.policy is policy
        and again.gaps == proof.gaps
    )
    if again.verdict is not Verdict.ERROR:
        assert again.judged(Policy()).verdict is proof.verdict


def test_an_error_that_a_policy_made_goes_with_it() -> None:
    """Without an estimate of its noise this gap is an ERROR only where odd domains count."""
    proof = a_proof([a_gap(), a_gap(noise_kind=NoiseKind.NONE, domain=Domain.NAN)])
    strict = proof.judged(Policy(strict_domains=True))
    assert (proof.verdict, strict.verdict) == (Verdict.FAITHFUL, Verdict.ERROR)
    assert strict.judged(Policy()).verdict is Verdict.FAITHFUL


def test_an_error_stays_an_error_when_judged_again() -> None:
    proof = replace(a_proof([a_gap()]), verdict=Verdict.ERROR, error="the runtime died")
    assert proof.judged(Policy(noise_limit=1e9)).verdict is Verdict.ERROR


@given(
    seed=st.integers(0, 999),
    size=st.sampled_from([1e-7, 1e-5, 1e-3, 1e-1]),
    rtol=st.sampled_from(RTOL_GRID),
    atol=st.sampled_from([1e-6, 1e-4, 1e-2]),
)
def test_another_tolerance_is_judged_from_the_stored_numbers(
    seed: int, size: float, rtol: float, atol: float
) -> None:
    rng = np.random.default_rng(seed)
    reference = (rng.standard_normal(30) * 10).astype(np.float32)
    candidate = (reference + size * rng.standard_normal(30)).astype(np.float32)
    found = measure(
        GapLabel(case="c", group="g", backend="b", output="y"),
        reference=reference,
        truth=None,
        candidate=candidate,
        noise=noise_of(reference, reference.astype(np.float64), NoiseKind.DOUBLE),
    )
    passes = np.allclose(
        candidate.astype(np.float64), reference.astype(np.float64), rtol=rtol, atol=atol
    )
    assert within_tolerance(found, Policy(atol=atol, rtol=rtol)) == passes


@given(rtol=st.floats(0, 0.2), seed=st.integers(0, 99))
def test_between_two_rtol_of_the_grid_a_stored_proof_is_never_too_kind(
    rtol: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    reference = (rng.standard_normal(30) * 10).astype(np.float32)
    candidate = (reference * (1 + 0.05 * rng.standard_normal(30))).astype(np.float32)
    found = measure(
        GapLabel(case="c", group="g", backend="b", output="y"),
        reference=reference,
        truth=None,
        candidate=candidate,
        noise=noise_of(reference, reference.astype(np.float64), NoiseKind.DOUBLE),
    )
    if within_tolerance(found, Policy(atol=1e-2, rtol=rtol)):
        assert np.allclose(
            candidate.astype(np.float64),
            reference.astype(np.float64),
            rtol=rtol,
            atol=1e-2 * (1 + 1e-9),
        )


def test_tolerances_a_user_measured_with_are_judged_with_them() -> None:
    """The allowance is a share of the tolerance it was measured with: another policy may not read it as its own."""
    reference = np.array([1, 2, 3], np.float32)
    candidate = reference + np.float32(0.05)
    found = measure(
        GapLabel(case="c", group="g", backend="b", output="y"),
        reference=reference,
        truth=None,
        candidate=candidate,
        noise=noise_of(reference, reference.astype(np.float64), NoiseKind.DOUBLE),
        atol=0.1,
        rtol=0.0,
    )
    assert within_tolerance(found, Policy(atol=0.1, rtol=0.0))
    assert not within_tolerance(found, Policy())


@pytest.mark.parametrize(
    ("ratio", "strict", "passed"),
    [(1.0, False, True), (1.0, True, True), (100.0, False, True), (100.0, True, False)],
)
def test_strict_makes_drift_fail(ratio: float, strict: bool, passed: bool) -> None:
    proof = a_proof([a_gap(noise_ratio=ratio, allowance=0.5)], Policy(strict=strict))
    assert proof.passed is passed and proof.verdict is (
        Verdict.FAITHFUL if ratio == 1 else Verdict.DRIFT
    )
    if passed:
        proof.raise_for_verdict()
    else:
        with pytest.raises(
            VerdictError,
            match=r"error\[verdict-drift\]: m.onnx drifts from Net: output `y`, case `c` on ort, 100 times the rounding noise",
        ):
            proof.raise_for_verdict()


def test_a_diverged_proof_raises_with_what_a_log_needs() -> None:
    proof = a_proof(
        [
            a_gap(),
            a_gap(
                case="mask-one row false",
                noise_ratio=500.0,
                worst_ratio=600.0,
                allowance=9.0,
                max_abs=0.25,
            ),
        ],
        findings=(Finding(code="dim-fixed", what="dim 0 of `x` is fixed at 2"),),
        replay="onnxproof verify f.py:build m.onnx --case 'x'",
    )
    with pytest.raises(VerdictError) as caught:
        proof.raise_for_verdict()
    text = str(caught.value)
    for words in (
        "m.onnx differs from Net",
        "case `mask-one row false` on ort",
        "500 times the rounding noise",
        "allclose fails",
        "1 of 2 cases differ",
        "dim 0 of `x` is fixed at 2",
        "replay: onnxproof verify f.py:build",
    ):
        assert words in text


def test_a_proof_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match="more than a yes or no"):
        bool(a_proof([a_gap()]))


def test_an_undefined_ratio_is_never_faithful() -> None:
    """NaN compares false with every limit: a ratio that could not be computed must not read as a small one."""
    assert (
        judge_gap(a_gap(noise_ratio=math.nan, worst_ratio=math.nan), Policy())
        is not Verdict.FAITHFUL
    )


@pytest.mark.parametrize("value", [1e200, 3e300])
def test_errors_whose_square_overflows_are_not_faithful(value: float) -> None:
    reference = np.array([value, 1.0])
    found = measure(
        GapLabel(case="c", group="g", backend="b", output="y"),
        reference=reference,
        truth=reference,
        candidate=np.array([-value, 1.0]),
        noise=noise_of(reference, reference, NoiseKind.DOUBLE),
    )
    assert judge_gap(found, Policy()) is Verdict.DIVERGED


@given(gap=gaps(), void=st.sampled_from(Void))
def test_what_proves_nothing_is_never_faithful_and_excuses_nothing_but_randomness(
    gap: Gap, void: Void
) -> None:
    plain, marked = judge_gap(gap, Policy()), judge_gap(replace(gap, void=void), Policy())
    assert marked is not Verdict.FAITHFUL
    if void is Void.RANDOM:
        assert marked is Verdict.VACUOUS or gap.status in (Status.MISSING, Status.REFUSED)
    elif plain is not Verdict.FAITHFUL:
        assert marked is plain


@given(found=st.lists(gaps(), max_size=4))
def test_a_finding_that_voids_takes_faithful_away_and_nothing_else(found: list[Gap]) -> None:
    plain = judge(found, Policy())
    voided = judge(found, Policy(), findings=[Finding(code="c", what="w", voids=True)])
    assert voided is (Verdict.VACUOUS if plain is Verdict.FAITHFUL else plain)


@pytest.mark.parametrize(
    ("noise", "ratio", "allowance", "beyond"),
    [
        (
            0.1,
            10.0,
            900.0,
            True,
        ),  # zeros for a chaotic answer: within twelve times the noise, and no answer
        (0.1, 1.4, 900.0, False),  # another rounding of the same chaos
        (0.01, 10.0, 900.0, False),  # a tenth of the output: the limit decides
        (0.1, 10.0, 0.5, False),  # tiny in absolute terms
        (5.0, 4.0, 900.0, False),  # a residual: the output is nothing but noise
    ],
)
def test_an_error_as_large_as_the_output_is_no_rounding(
    noise: float, ratio: float, allowance: float, *, beyond: bool
) -> None:
    gap = a_gap(scale=1.0, noise=noise, rms=noise * ratio, noise_ratio=ratio, allowance=allowance)
    assert beyond_noise(gap, Policy()) is beyond
