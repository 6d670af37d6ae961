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

from onnxproof.diagnosis.counterfactuals import quantized_study
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.inputs import data_stream as user_data
from onnxproof.quantization.attribution import Study
from onnxproof.quantization.calibration.data_quality import check_scale
from onnxproof.quantization.calibration.statistics import Statistics

TITLE = "the ranges were learned from other data"
PRICE = -20
_TINY = 1e-30
"""Against division by zero."""


def test(workbench: Workbench) -> Tried | str:
    """Put the ranges in that the served data asks for."""
    study = quantized_study.study(workbench)
    if isinstance(study, str):
        return study
    if not study.pairs:
        return "no activation is rounded"
    return quantized_study.granted(
        workbench,
        study,
        study.recalibrate(),
        what=f"with ranges from the served data ({_worst_range(study)}{_calibration_data(workbench, study)})",
        fix="calibrate with inputs as they are served: onnxproof quantize SUBJECT -o MODEL --calibration DATA",
    )


def _worst_range(study: Study) -> str:
    """How far the ranges are off, at the value where it is worst."""
    ratios = {}
    for pair in study.pairs:
        if pair.value in study.statistics:
            low, high = study.observed_range(pair)
            ends = [abs(float(limit.reshape(-1)[0])) for limit in pair.limits]
            reached = max(abs(low), abs(high))
            ratios[pair.value] = reached / max(*ends, _TINY)
    off = {name: abs(np.log(max(ratio, _TINY))) for name, ratio in ratios.items()}
    worst = max(off, key=lambda name: off[name])
    return f"`{worst}` reaches {ratios[worst]:.3g} times its range"


def _calibration_data(workbench: Workbench, study: Study) -> str:
    """What the calibration data looks like beside the served data, where it was given."""
    if workbench.means.calibration is None:
        return ""
    served = study.samples[0][1]
    sample = next(iter(user_data.stream(workbench.means.calibration, list(served))), None)
    if sample is None:
        return ""
    _, arrays = sample
    for name, array in arrays.items():
        statistics = Statistics()
        statistics.update(np.asarray(array, np.float32), name)
        differences = check_scale(name, statistics, served[name], "what is served")
        if differences:
            return f"; {differences[0].what}"
    return ""
