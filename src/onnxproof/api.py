"""What a user calls: each verb, composed of the stages that it needs."""

from onnxproof.exporter.export import export
from onnxproof.inspection import inspect
from onnxproof.quantization.quantize import quantize
from onnxproof.verification.run import diff, verify

__all__ = ["diff", "export", "inspect", "quantize", "verify"]
