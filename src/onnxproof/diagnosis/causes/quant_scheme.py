"""The scheme has too few levels where the values are.

What it is: symmetric ranges for values that lie on one side of zero waste half of the levels; one scale for a whole weight
tensor leaves its small filters two or three; 4 bits are 16 levels.

Why it happens: defaults made for another target (S8S8, per tensor), or the wish for a smaller file.

How to see it: with all levels where the data is, with a scale for each filter, or with more bits, the answers are right.

How to fix it: uint8 activations and per-channel weights on x86 (`--scheme u8s8`), 16 bits where the target has them.

Example: activations between 0 and 8 quantized symmetrically around zero.
"""

from onnxproof.diagnosis.counterfactuals import quantized_study
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

TITLE = "the scheme has too few levels where the values are"
PRICE = -16


def test(workbench: Workbench) -> Tried | str:
    """Asymmetric ranges, then a scale for each filter, then float weights: the first that mends names what is lacking."""
    study = quantized_study.study(workbench)
    if isinstance(study, str):
        return study
    trials = (
        (
            study.use_asymmetric_ranges,
            "with all levels where the data is (asymmetric)",
            "quantize activations asymmetrically: --scheme u8s8",
        ),
        (
            study.use_filter_scales,
            "with a scale for each filter of the weights",
            "quantize weights per channel: --scheme u8s8",
        ),
        (
            study.restore_float_weights,
            "with the float weights",
            "give the weights more bits: --scheme u8s8, or w8",
        ),
    )
    likely: list[Tried] = []
    for change, what, fix in trials:
        tried = quantized_study.granted(workbench, study, change(), what=what, fix=fix)
        if isinstance(tried, str):
            continue
        if tried.proven:
            return tried
        likely.append(tried)
    if not likely:
        return "neither asymmetric ranges nor finer weights make the difference"
    return min(likely, key=lambda tried: tried.error_left or 0.0)
