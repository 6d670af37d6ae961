"""Unsigned activations, signed weights with a scale for each channel: what x86 integer kernels are made for."""

from onnxproof.quantization.insert_qdq import Plan

ABOUT = "uint8 activations, int8 weights, per channel"
PLAN = Plan(activations="uint8", weights="int8", symmetric=False, per_channel=True)
