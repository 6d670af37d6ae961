from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from onnxproof.suite.gate import Gate, decide, exit_code
from onnxproof.suite.records import Result

TODAY = date(2026, 11, 18)
VERDICTS = ("faithful", "drift", "diverged", "error", "vacuous")


def gate(verdict, expected=None, *, passed=None, cause="", **more):
    if passed is None:
        passed = verdict in ("faithful", "drift")
    known = None if expected is None else {"verdict": expected, "reason": "seen", **more}
    result = Result(name="m", verdict=verdict, passed=passed, expected=known, cause=cause)
    return decide(result, TODAY)


def test_without_an_expectation_the_verdict_decides():
    assert [gate(verdict).gate for verdict in VERDICTS] == [
        Gate.PASS,
        Gate.PASS,
        Gate.FAULT,
        Gate.ERROR,
        Gate.VACUOUS,
    ]
    assert gate("drift", passed=False).gate is Gate.FAULT
    assert "baseline" in gate("faithful", passed=False).why


def test_a_known_fault_passes_until_its_day():
    assert gate("diverged", "diverged").gate is Gate.KNOWN
    assert gate("diverged", "diverged", expires="2026-11-19").gate is Gate.KNOWN
    late = gate("diverged", "diverged", expires="2026-11-18")
    assert late.gate is Gate.FAULT and "that day has come" in late.why
    assert gate("drift", "drift", expires="2026-01-01").gate is Gate.FAULT
    assert gate("faithful", "drift", expires="2026-01-01").gate is Gate.PASS


def test_a_known_fault_hides_no_other():
    assert gate("diverged", "drift").gate is Gate.FAULT
    assert gate("diverged", "error").gate is Gate.FAULT
    assert gate("error", "diverged").gate is Gate.ERROR
    assert gate("vacuous", "drift").gate is Gate.VACUOUS
    assert gate("faithful", "drift", passed=False).gate is Gate.FAULT
    assert gate("diverged", "diverged", cause="weights").gate is Gate.KNOWN
    other = gate("diverged", "diverged", cause="masking", **{})
    assert other.gate is Gate.KNOWN
    decision = decide(
        Result(
            name="m",
            verdict="diverged",
            cause="masking",
            expected={"verdict": "diverged", "cause": "weights"},
        ),
        TODAY,
    )
    assert decision.gate is Gate.FAULT and "weights is the known one" in decision.why


def test_better_than_expected_passes_and_says_so():
    assert gate("drift", "diverged").gate is Gate.KNOWN
    assert "the expectation can go" in gate("faithful", "diverged").why


def test_a_fault_beats_an_error_beats_nothing_compared():
    decisions = [gate(verdict) for verdict in VERDICTS]
    assert exit_code(decisions) == 1
    assert exit_code([d for d in decisions if d.gate is not Gate.FAULT]) == 2
    assert exit_code([gate("faithful"), gate("vacuous")]) == 3
    assert exit_code([gate("faithful"), gate("error", "error")]) == 0


@given(
    st.sampled_from(VERDICTS),
    st.sampled_from(VERDICTS),
    st.dates(),
    st.booleans(),
)
def test_an_expectation_never_excuses_another_verdict(verdict, known, expires, passed):
    plain = gate(verdict, passed=passed)
    with_known = gate(verdict, known, passed=passed, expires=expires.isoformat())
    excused = with_known.gate is Gate.KNOWN and plain.gate is not Gate.PASS
    if excused:
        assert (verdict == known or (verdict, known) == ("drift", "diverged")) and expires > TODAY
    if plain.gate is not Gate.PASS and not excused:
        assert with_known.gate is not Gate.PASS
