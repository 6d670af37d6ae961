"""Cross-layer equalization: channels of very different size between two layers share one scale, and the small ones vanish in it.

Each channel is divided where it is made and multiplied where it is read, so the float answers stay the same (Nagel et al. 2019, with the
activations' reach from the data). Works through ReLU, ReLU6, pooling and depthwise convolutions.
"""

import onnx

from onnxproof.quantization.float_graph import Index, copied
from onnxproof.quantization.scaling import factors, links, rescale
from onnxproof.quantization.workbench import Applied, Bench

ABOUT = "cross-layer equalization"
_WORTH = 1.5
"""Reaches that differ by less are left as they are."""


def apply(bench: Bench) -> Applied | str:
    """Equalize convolutions and linear layers that follow each other."""
    return migrate(bench, ("Conv", "Gemm"), strength=0.5)


def migrate(bench: Bench, makers: tuple[str, ...], *, strength: float) -> Applied | str:
    """Rescale every link behind these makers; statistics follow the weights, so no pass over the data is needed."""
    model: onnx.ModelProto = copied(bench.model)
    index, done = Index(model), 0
    for link in links(index, makers):
        divisor = factors(link, bench.stats, index, strength)
        if divisor is not None and float(divisor.max()) > _WORTH * float(divisor.min()):
            rescale(index, link, divisor)
            done += 1
    if not done:
        return f"no channels between {' or '.join(makers)} and the next layer differ in size"
    return Applied(model=model, what=f"{done} places rescaled", changes_values=True)
