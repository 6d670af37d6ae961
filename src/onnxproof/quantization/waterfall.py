"""The loss of a quantized graph as a waterfall: from the served model to float, one counterfactual on top of the other."""

import math
from collections.abc import Sequence

from onnxproof.quantization.attribution import MOST_DB, Study
from onnxproof.results import Share

_ALWAYS = ("runtime", "8-bit activations", "8-bit weights")
"""Steps that are part of every waterfall; the others only where they help."""
_WORTH_DB = 1.0
"""Decibels from which on an optional step is part of the waterfall (not measured)."""


def compute_waterfall(study: Study) -> list[Share]:
    """From the served model to float, each step on top of those before it; shares of the error's energy add up to one."""
    level, model = study.served_db, study.model
    steps = [("served", level)]
    for name, change in (
        ("runtime", None),
        ("quant-saturation", study.restore_saturated_biases),
        ("unfused", study.fuse_layers),
        ("calibration", study.recalibrate),
        ("outlier", study.trim_ranges),
        ("quant-scheme", study.use_asymmetric_ranges),
        ("channel-imbalance", study.use_channel_scales),
        ("8-bit activations", study.remove_rounding),
        ("weights: one scale a tensor", study.use_filter_scales),
        ("8-bit weights", study.restore_float_weights),
    ):
        changed = model if change is None else change(model)
        if changed is None:
            continue
        after = study.sqnr_db(changed)
        if math.isnan(after) or after == -math.inf:
            continue
        if after < level + _WORTH_DB and name not in _ALWAYS:
            continue  # a change that does not help is not made; one that leaves no error at all does
        model, level = changed, after
        steps.append((name, level))
    return _shares(steps)


def _shares(steps: Sequence[tuple[str, float]]) -> list[Share]:
    """What each step took of the error's energy; what is left is the rest. Levels beyond measure are capped, or a share would be no number."""
    levels = [max(min(level, MOST_DB), -MOST_DB) for _, level in steps]
    energies = [10 ** (-level / 10) for level in levels]
    shares = []
    for place in range(1, len(steps)):
        shares.append(
            Share(
                code=steps[place][0],
                db=levels[place] - levels[place - 1],
                share=(energies[place - 1] - energies[place]) / energies[0],
                after_db=levels[place],
            )
        )
    rest = energies[-1] / energies[0]
    return [*shares, Share(code="rest", db=0.0, share=rest, after_db=levels[-1])]
