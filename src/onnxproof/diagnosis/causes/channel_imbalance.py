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

from onnxproof.diagnosis.counterfactuals.quantized_study import granted, requantized, study
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.quantization.attribution import Study

TITLE = "channels of very different size share one scale"
PRICE = -14
_FIX = (
    "equalize across layers: onnxproof quantize SUBJECT -o MODEL --recipe equalize --recipe smooth"
)


def test(bench: Workbench) -> Tried | str:
    """A scale for each channel of each activation; the remedy is equalization, tried on the reference itself."""
    found = study(bench)
    if isinstance(found, str):
        return found
    what, model = f"with a scale for each channel ({_words(found)})", found.use_channel_scales()
    tried = granted(found, model, what=what, fix=_FIX)
    if (
        isinstance(tried, str) or not tried.proven
    ):  # weights that undo the imbalance suffer from it as well
        both = granted(
            found,
            found.restore_float_weights(model),
            what=f"{what} and of the weights that read it",
            fix=_FIX,
        )
        tried = both if isinstance(both, Tried) and both.proven else tried
    if isinstance(tried, str) or not tried.proven:
        return tried
    return replace(
        tried, model=requantized(bench, found, "equalize", "smooth", "fit-ranges") or tried.model
    )


def _words(found: Study) -> str:
    """The value with the most channels that are left with fewer than 16 levels."""
    shares = {}
    for pair in found.pairs:
        stats = found.statistics.get(pair.value)
        if stats is not None and stats.channel_low is not None and stats.channel_high is not None:
            levels = (stats.channel_high - stats.channel_low) / float(pair.scale.max())
            shares[pair.value] = float((levels < 16).mean())
    if not shares:
        return "no value has channels"
    worst = max(shares, key=lambda name: shares[name])
    return (
        f"{shares[worst]:.0%} of the channels of `{worst}` have fewer than 16 levels"
        if np.isfinite(shares[worst])
        else ""
    )
