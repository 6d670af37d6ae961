"""The ranges were learned from other data than is served.

What it is: a quantized model holds a range for every value. Calibrated on data of another scale, on noise, on a few samples
or on one class, the ranges are too narrow (values are clipped) or too wide (few levels are left for what comes).

Why it happens: preprocessing is left out of the calibration script, random tensors stand in for data, normalisation is done
twice, the calibration set is small.

How to see it: the same graph with ranges from the served data gives the right answers.

How to fix it: calibrate with a few hundred inputs exactly as they are served.

Example: calibrated on `randn`, served `randn * 10`.
"""

import numpy as np

from onnxproof.diagnosis.counterfactuals.quantized_study import granted, study
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.inputs import data_stream as user_data
from onnxproof.quantization.attribution import Study
from onnxproof.quantization.calibration.data_quality import check_scale
from onnxproof.quantization.calibration.statistics import Statistics

TITLE = "the ranges were learned from other data"
PRICE = -20


def test(bench: Workbench) -> Tried | str:
    """Put the ranges in that the served data asks for."""
    found = study(bench)
    if isinstance(found, str):
        return found
    return granted(
        found,
        found.recalibrate(),
        what=f"with ranges from the served data ({_words(found)}{_inputs(bench, found)})",
        fix="calibrate with inputs as they are served: onnxproof quantize SUBJECT -o MODEL --calibration DATA",
    )


def _words(found: Study) -> str:
    """How far the ranges are off, at the value where it is worst."""
    ratios = {}
    for pair in found.pairs:
        if pair.value in found.statistics:
            low, high = found.observed_range(pair)
            here = max(abs(float(limit.reshape(-1)[0])) for limit in pair.limits)
            ratios[pair.value] = max(abs(low), abs(high)) / max(here, 1e-30)
    worst = max(ratios, key=lambda name: abs(np.log(max(ratios[name], 1e-30))))
    return f"`{worst}` reaches {ratios[worst]:.3g} times its range"


def _inputs(bench: Workbench, found: Study) -> str:
    """What the calibration data looks like beside the served data, where it was given."""
    if bench.calibration is None:
        return ""
    served = found.samples[0][1]
    for _, arrays in user_data.stream(bench.calibration, list(served)):
        for name, array in arrays.items():
            stats = Statistics()
            stats.update(np.asarray(array, np.float32), name)
            said = check_scale(name, stats, served[name], "what is served")
            if said:
                return f"; {said[0].what}"
        break
    return ""
