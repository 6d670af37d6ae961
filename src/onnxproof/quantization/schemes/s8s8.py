"""Signed activations around zero and signed weights: what GPUs, NPUs and ARM want; on x86 it keeps ReLU nodes and is slower."""

from onnxproof.quantization.insert_qdq import Plan

ABOUT = "int8 activations (symmetric), int8 weights, per channel"
PLAN = Plan(activations="int8", weights="int8", symmetric=True, per_channel=True)
