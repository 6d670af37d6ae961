# mypy: ignore-errors
"""The measures and the judge of `replay.py`, with numpy alone: what `numerics/measure`, `bundle/comparison` and `results/judging` do.

`bundle/write` puts the text below the line into the script, so that it is one file. A test compares its gaps with those of `onnxproof replay`.
"""

import math

import numpy as np

# ---
FLOOR, FLOOR_DOUBLE = 0.25, 2.0
RTOL_GRID = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
ORDER = ("faithful", "drift", "diverged", "error")


# Measuring


def noise_floor(reference, scale):
    """The least noise: a share of an ulp at this scale."""
    about = np.finfo(reference.dtype)
    share = FLOOR if about.eps > 1e-15 else FLOOR_DOUBLE
    return max(share * float(about.eps) * scale, float(about.tiny) * float(about.eps))


def ratio(value, level):
    """In units of a level; beyond any where the level is 0."""
    if level:
        return value / level
    return math.inf if value else 0.0


def measure(gap, answer, output, noise, floor_scale):
    """The gap of one output, as `onnxproof.numerics.measure` has it."""
    reference = answer["reference"]
    gap = dict(gap, status="compared", noise_kind=noise["kind"])
    if output is None:
        return dict(gap, status="missing", detail="the model has no such output")
    if output.shape != reference.shape:
        shapes = f"reference {list(reference.shape)}, candidate {list(output.shape)}"
        return dict(gap, status="shape", detail=shapes)
    if reference.size == 0:
        return dict(gap, status="empty", detail="nothing to compare: the output is empty")
    if output.dtype != reference.dtype:
        dtypes = f"reference {reference.dtype}, candidate {output.dtype}"
        gap = dict(gap, status="dtype", detail=dtypes)
    if reference.dtype.kind not in "fc":
        return measure_exact(gap, answer, output, noise)
    truth = answer["truth"]
    if truth is None:
        truth = reference
    return measure_floats(gap, reference, truth, output, noise, floor_scale)


def measure_exact(gap, answer, output, noise):
    """Integers and booleans."""
    reference = answer["reference"]
    differ = (reference != output).reshape(-1)
    mismatches = int(differ.sum())
    unstable = answer.get("unstable")
    undecided = 0
    if unstable is not None and unstable.shape == differ.shape:
        undecided = int((differ & unstable.astype(bool)).sum())
    times = ratio(mismatches, noise["flips"])
    apart = float(np.abs(reference.astype(np.float64) - output).max())
    gap = dict(gap, compared=reference.size, noise_kind="exact", noise=noise["flips"])
    gap.update(noise_ratio=times, worst_ratio=times, max_abs=apart)
    gap.update(mismatches=mismatches, unstable=undecided)
    return dict(gap, allowance=math.inf if mismatches else 0.0)


def measure_floats(gap, reference, truth, output, noise, floor_scale):
    """The error against the truth in units of the noise."""
    narrow = reference
    wide = [array_as_float64(array) for array in (reference, truth, output)]
    usable = np.isfinite(wide[0]) & np.isfinite(wide[1]) & np.isfinite(wide[2])
    finite = np.isfinite(wide[0])
    same = (wide[0] == wide[2]) | (np.isnan(wide[0]) & np.isnan(wide[2]))
    lost = int((finite & ~np.isfinite(wide[2])).sum())
    odd = int((~finite & ~same).sum())
    r, t, c = (array[usable] for array in wide)
    count = int(usable.sum())
    if not count:
        return dict(gap, lost=lost, odd=odd)
    error = np.abs(c - t)
    scale = float(np.sqrt(np.mean(t * t)))
    rms = float(np.sqrt(np.mean(error * error)))
    if narrow.dtype.kind == "c":
        narrow = narrow.real
    level = max(noise["rms"], noise_floor(narrow, max(scale, floor_scale)))
    difference = np.abs(c - r)
    needed = [float(max(0.0, (difference - rtol * np.abs(r)).max())) for rtol in RTOL_GRID]
    worst = ratio(float(error.max()), max(noise["worst"], 2.0 * level))
    gap = dict(gap, compared=count, lost=lost, odd=odd, scale=scale, rms=rms, noise=level)
    gap.update(noise_ratio=ratio(rms, level), worst_ratio=worst, atol_needed=needed)
    return dict(gap, max_abs=float(difference.max()))


def array_as_float64(array):
    """Flat float64; complex numbers as pairs."""
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], axis=-1)
    return array.astype(np.float64).reshape(-1)


# Judging


def within_tolerance(gap, policy):
    """What `allclose` would say."""
    needed = gap.get("atol_needed")
    if not needed:
        return gap.get("allowance", 0.0) <= 1.0
    place = max(i for i, rtol in enumerate(RTOL_GRID) if rtol <= policy["rtol"] or i == 0)
    return needed[place] <= policy["atol"]


def beyond_noise(gap, policy):
    """Whether rounding does not explain the gap."""
    if gap.get("mismatches"):
        decided = gap["mismatches"] > gap["unstable"]
        return decided and gap["noise_ratio"] > policy["noise_limit"] / 4
    times, scale = gap.get("noise_ratio", 0.0), gap.get("scale", 0.0)
    fills = gap.get("noise", 0.0) < scale and gap.get("rms", 0.0) > 0.5 * scale
    if fills and times > 0.4 * policy["noise_limit"] and not within_tolerance(gap, policy):
        return True
    small = gap.get("worst_ratio", 0.0) <= policy["worst_limit"]
    return not (times <= policy["noise_limit"] and small)


def suspicious(gap, policy):
    """Whether a gap would be an alarm, or can't be measured at all."""
    unmeasurable = gap["status"] in ("shape", "missing", "refused") or gap.get("lost", 0) > 0
    return unmeasurable or beyond_noise(gap, policy)


def domain_of(gap, case, answer, half):
    """The domain that a difference lives in by what is known before any other measurement; None for none."""
    if case["domain"] == "empty" or (gap["status"] == "shape" and answer["reference"].size == 0):
        return "empty"
    if answer["undecided"] and (gap.get("lost") or half):
        return "inf"
    absorbed = gap.get("lost") and case["domain"] == "nan" and answer["all_finite"]
    return None if absorbed else case["domain"]


def classify(gap, answer, output, remeasure, policy):
    """The gap by the noise of a flipped decision, or of what no mask hides, where that explains it."""
    if output is None or gap["status"] in ("shape", "refused") or gap.get("lost"):
        return gap
    if answer["loud"] is not None:
        louder = remeasure(dict(answer, unstable=answer["loud_unstable"]), output, answer["loud"])
        if not suspicious(louder, policy):
            return louder
    if answer["visible"] is None or answer["excused"] is None:
        return gap
    keep = ~answer["excused"].astype(bool)
    part = dict(answer, reference=answer["reference"][keep], truth=None)
    if answer["truth"] is not None:
        part["truth"] = answer["truth"][keep]
    seen = remeasure(part, output[keep], answer["visible"])
    if seen.get("compared") and suspicious(seen, policy):
        return gap
    return dict(seen, domain="masked")


def judge_gap(gap, policy):
    """The verdict on one gap."""
    verdict = judge_values(gap, policy)
    if gap.get("void") == "nondeterministic-reference" and gap["status"] != "refused":
        return "vacuous"
    if gap.get("void") is not None and verdict == "faithful":
        return "vacuous"
    return verdict


def judge_values(gap, policy):
    """By the numbers alone."""
    compared = gap.get("compared", 0) > 0
    if gap.get("domain") is not None and not policy["strict_domains"]:
        return "faithful" if compared else "vacuous"
    if gap["status"] == "empty":
        return "vacuous"
    lost = gap.get("lost") or (gap.get("odd") and policy["strict_domains"])
    if lost or gap["status"] in ("shape", "missing", "refused"):
        return "diverged"
    if compared and gap["noise_kind"] == "none":
        return "error"
    beyond = beyond_noise(gap, policy)
    if beyond or gap["status"] == "dtype":
        return "diverged" if beyond and not within_tolerance(gap, policy) else "drift"
    return "faithful" if compared or gap.get("odd") else "vacuous"


def judge(gaps, policy):
    """The worst gap decides; nothing compared is vacuous."""
    verdicts = [judge_gap(gap, policy) for gap in gaps]
    deciding = [verdict for verdict in verdicts if verdict != "vacuous"]
    return max(deciding, key=ORDER.index) if deciding else "vacuous"


def severity(gap, policy):
    """A sort key: the worst gap has the largest."""
    verdict = judge_gap(gap, policy)
    rank = ORDER.index(verdict) if verdict in ORDER else -1
    return rank, gap.get("noise_ratio", 0.0)
