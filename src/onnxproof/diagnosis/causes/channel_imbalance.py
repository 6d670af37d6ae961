"""Channels of very different size share one scale, and the small ones vanish in it.

What it is: an activation has one scale for all of its channels. When one channel reaches 1,000 and another 1, the second has
a quarter of a level. The tensor as a whole looks healthy, since the large channels carry its energy.

Why it happens: folded BatchNorms, depthwise convolutions, outlier channels behind LayerNorm.

How to see it: with a scale for each channel (which no kernel has) the answers are right.

How to fix it: cross-layer equalization or migration into the weights: the float answers stay the same, nothing is kept in float.

Example: a MobileNet whose int8 accuracy is chance.
"""

from dataclasses import replace

import numpy as np

from onnxproof.diagnosis.counterfactuals import quantized_study
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.quantization.attribution import Study

TITLE = "channels of very different size share one scale"
PRICE = -14
_FIX = (
    "equalize across layers: onnxproof quantize SUBJECT -o MODEL --recipe equalize --recipe smooth"
)
_FEW_LEVELS = 16
"""A channel with fewer levels is called starved: four bits. Not measured."""


def test(workbench: Workbench) -> Tried | str:
    """A scale for each channel of each activation; the remedy is equalization, tried on the reference itself."""
    study = quantized_study.study(workbench)
    if isinstance(study, str):
        return study
    tried = _try_scales(workbench, study)
    if isinstance(tried, str) or not tried.proven:
        return tried
    equalized = quantized_study.requantized(workbench, study, "equalize", "smooth", "fit-ranges")
    return replace(tried, model=equalized or tried.model)


def _try_scales(workbench: Workbench, study: Study) -> Tried | str:
    """A scale for each channel; where that is not enough, float weights as well: weights that undo the imbalance suffer from it, too."""
    what = f"with a scale for each channel ({_starved_channels(study)})"
    by_channel = study.use_channel_scales()
    tried = quantized_study.granted(workbench, study, by_channel, what=what, fix=_FIX)
    if isinstance(tried, Tried) and tried.proven:
        return tried
    both = quantized_study.granted(
        workbench,
        study,
        study.restore_float_weights(by_channel),
        what=f"{what} and of the weights that read it",
        fix=_FIX,
    )
    if isinstance(both, Tried) and both.judgement is not None:
        return both
    return tried


def _starved_channels(study: Study) -> str:
    """The value with the most channels that are left with few levels."""
    shares = {}
    for pair in study.pairs:
        stats = study.statistics.get(pair.value)
        if stats is not None and stats.channel_low is not None and stats.channel_high is not None:
            levels = (stats.channel_high - stats.channel_low) / float(pair.scale.max())
            shares[pair.value] = float((levels < _FEW_LEVELS).mean())
    if not shares:
        return "no value has channels"
    worst = max(shares, key=lambda name: shares[name])
    if not np.isfinite(shares[worst]):
        return ""
    return f"{shares[worst]:.0%} of the channels of `{worst}` have fewer than {_FEW_LEVELS} levels"
