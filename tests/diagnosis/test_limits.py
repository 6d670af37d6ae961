"""The thresholds of locating: none is below its floor, and ratios never divide by 0."""

from onnxproof.diagnosis import limits


def test_the_limits_have_their_floors() -> None:
    assert limits.error_limit(0.0) == limits.ERROR_FLOOR
    assert limits.error_limit(1e-3) == 20 * 1e-3
    assert limits.float64_limit(0.4) == 0.1
    assert limits.float64_limit(0.0) == limits.ERROR_FLOOR


def test_the_tolerance_of_values_lies_between_the_resolution_and_its_largest() -> None:
    assert limits.value_tolerance(0.0, 3e-7) == 3e-7
    assert limits.value_tolerance(1e-3, 3e-7) == 1e-6
    assert limits.value_tolerance(float("inf"), 3e-7) == limits.LARGEST_TOLERANCE
    assert limits.value_tolerance(1.0, 2e-3) == 2e-3


def test_a_fix_leaves_a_twentieth() -> None:
    assert limits.fixes(0.04, 1.0) and not limits.fixes(0.06, 1.0)
    assert not limits.fixes(float("inf"), float("inf"))
    assert limits.noise_ratio(1.0, 0.0) == 1.0 / limits.SMALLEST_NOISE
