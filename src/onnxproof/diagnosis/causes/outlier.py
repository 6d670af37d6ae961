"""A few rare values stretch a range, and everything else shares what is left.

What it is: with minimum and maximum as the range, one value in ten thousand decides the step of all others.

Why it happens: min-max calibration on activations with long tails; a broken sample among the calibration data.

How to see it: with ranges that give the rare values up, the answers are right.

How to fix it: another calibrator (`mse`, `percentile`), or `auto`, which is judged on the outputs.

Example: one dead pixel of 1e4 in an image.
"""

from onnxproof.diagnosis.counterfactuals import quantized_study
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

TITLE = "rare large values stretch a range"
PRICE = -18
_TINY = 1e-30
"""Against division by zero."""


def test(workbench: Workbench) -> Tried | str:
    """Give the rare values up."""
    study = quantized_study.study(workbench)
    if isinstance(study, str):
        return study
    ratios = {}
    for pair in study.pairs:
        statistics = study.statistics.get(pair.value)
        if statistics is not None:
            largest = max(abs(statistics.low), abs(statistics.high))
            ratios[pair.value] = largest / max(statistics.rms, _TINY)
    if not ratios:
        return "no activation is rounded"
    worst = max(ratios, key=lambda name: ratios[name])
    return quantized_study.granted(
        workbench,
        study,
        study.trim_ranges(),
        what=f"with ranges that give up what is rare (`{worst}` reaches {ratios[worst]:.3g} times its rms)",
        fix="calibrate with --calibrator mse, percentile:99.99 or auto",
    )
