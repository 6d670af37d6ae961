"""Roundings stand between operators that should be one.

What it is: a convolution, its BatchNorm and its ReLU are one integer kernel when they are folded before quantization. Left apart, each
has its own rounding: the values before the norm are not the values that matter, and no integer kernel fits the pattern.

Why it happens: the model was exported in training mode, or quantized without folding; an activation that the quantizer does not know.

How to see it: without the roundings in between the answers are right; the census shows convolutions that run in float.

A symmetric rounding behind a ReLU is the same in small: its lowest level is not zero, so that the ReLU can't be part of it. The answers are right then, and `explain` says what the layers run as.

How to fix it: fold first (`onnxproof quantize` does), then quantize; activations asymmetrically.

Example: Conv, Q/DQ, BatchNormalization, Q/DQ, ReLU.
"""

from onnxproof.diagnosis.counterfactuals import quantized_study
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

TITLE = "roundings stand between operators that should be one"
PRICE = -19


def test(workbench: Workbench) -> Tried | str:
    """Take the roundings out that stand between a layer and its norm, bias or activation."""
    study = quantized_study.study(workbench)
    if isinstance(study, str):
        return study
    return quantized_study.granted(
        workbench,
        study,
        study.fuse_layers(),
        what="without the roundings between layers and what should be part of them",
        fix="fold BatchNorm and activations before quantizing: onnxproof quantize SUBJECT -o MODEL",
    )
