"""16-bit activations and 8-bit weights: nearly float, for NPUs that have it; on x86 no integer kernel takes it, so it is slower than float."""

from onnxproof.quantization.insert_qdq import Plan

ABOUT = "uint16 activations, int8 weights, per channel"
PLAN = Plan(activations="uint16", weights="int8", symmetric=False, per_channel=True)
