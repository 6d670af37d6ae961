"""Capture by reading the bytecode (strict) instead of running the Python: it supports other code."""

from onnxproof.exporter.failures import Failure
from onnxproof.exporter.job import ExportedModel, Job, capture_and_translate

ABOUT = "captured in strict mode"
KINDS = ("data-dependent", "inputs", "other")


def attempt(job: Job, failure: Failure) -> ExportedModel:
    """The standard route in strict mode."""
    return capture_and_translate(job, strict=True)
