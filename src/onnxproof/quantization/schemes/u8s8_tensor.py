"""Unsigned activations, signed weights with one scale a tensor: for targets that know no other."""

from onnxproof.quantization.insert_qdq import Plan

ABOUT = "uint8 activations, int8 weights, per tensor"
PLAN = Plan(activations="uint8", weights="int8", symmetric=False, per_channel=False)
