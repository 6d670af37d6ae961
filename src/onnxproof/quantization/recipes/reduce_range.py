"""Seven-bit weights for the layers whose data saturates: on CPUs without VNNI pairs of products are added in 16 bits.

Only where the data says so, and only for such a CPU: everywhere else it would cost a bit of every weight for nothing.
"""

from onnxproof.quantization.saturation import has_vnni, reduced, saturated
from onnxproof.quantization.workbench import Applied, Bench

ABOUT = "seven-bit weights where sums would saturate"


def apply(bench: Bench) -> Applied | str:
    """Predict the saturation from the data, layer by layer."""
    if bench.target == "vnni" or (not bench.target and has_vnni()):
        return "this CPU adds in 32 bits (VNNI): nothing saturates; `--target avx2` prepares for one that doesn't"
    found = saturated(bench.quantized, bench.samples)
    if not found:
        return "no pair of products leaves 16 bits on this data"
    worst = max(found, key=lambda name: found[name])
    return Applied(
        quantized=reduced(bench.quantized, list(found)),
        required=True,
        what=f"{len(found)} layers; without it {found[worst]:.1%} of the outputs of {worst} would be touched",
    )
