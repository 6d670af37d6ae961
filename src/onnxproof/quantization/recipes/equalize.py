"""Cross-layer equalization: channels of very different size between two layers share one scale, and the small ones vanish in it.

Each channel is divided where it is made and multiplied where it is read, so the float outputs stay the same (Nagel et al. 2019, with the
activations' reach from the data). Works through ReLU, ReLU6, pooling and depthwise convolutions.
"""

import onnx

from onnxproof.quantization.float_graph import Index, copy_model
from onnxproof.quantization.scaling import factors, links, rescale
from onnxproof.quantization.trials import Applied, QuantizationTrials

ABOUT = "cross-layer equalization"
_WORTH = 1.5
"""Channels whose sizes differ by less are left as they are (not measured)."""


def apply(trials: QuantizationTrials) -> Applied | str:
    """Equalize convolutions and linear layers that follow each other."""
    return migrate(trials, ("Conv", "Gemm"), strength=0.5)


def migrate(
    trials: QuantizationTrials, producers: tuple[str, ...], *, strength: float
) -> Applied | str:
    """Rescale every link behind these producers; statistics follow the weights, so no pass over the data is needed."""
    model: onnx.ModelProto = copy_model(trials.model)
    index = Index(model)
    rescaled = 0
    for link in links(index, producers):
        divisor = factors(link, trials.stats, index, strength)
        if divisor is not None and float(divisor.max()) > _WORTH * float(divisor.min()):
            rescale(index, link, divisor)
            rescaled += 1
    if not rescaled:
        return f"no channels between {' or '.join(producers)} and the next layer differ in size"
    return Applied(model=model, what=f"{rescaled} places rescaled", changes_values=True)
