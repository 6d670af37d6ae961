"""Seven-bit weights for the layers whose data saturates: on CPUs without VNNI pairs of products are added in 16 bits.

Only where the data says so, and only for such a CPU: everywhere else it would cost a bit of every weight for nothing.
"""

from onnxproof.quantization.saturation import (
    has_vnni,
    measure_saturation,
    reduce_weight_range,
)
from onnxproof.quantization.trials import Applied, QuantizationTrials

ABOUT = "seven-bit weights where sums would saturate"


def apply(trials: QuantizationTrials) -> Applied | str:
    """Predict the saturation from the data, layer by layer."""
    if trials.target == "vnni" or (not trials.target and has_vnni()):
        return "this CPU adds in 32 bits (VNNI): nothing saturates; `--target avx2` prepares for one that doesn't"
    shares = measure_saturation(trials.quantized, trials.samples)
    if not shares:
        return "no pair of products leaves 16 bits on this data"
    worst = max(shares, key=lambda name: shares[name])
    return Applied(
        quantized=reduce_weight_range(trials.quantized, list(shares)),
        required=True,
        what=f"{len(shares)} layers; without it {shares[worst]:.1%} of the outputs of {worst} would be touched",
    )
