"""Capture by reading the bytecode (strict) instead of running the Python: other code is in reach."""

from onnxproof.exporter.failures import Failure
from onnxproof.exporter.job import Job, Made, standard

ABOUT = "captured in strict mode"
KINDS = ("data-dependent", "inputs", "other")


def run(job: Job, failure: Failure) -> Made:
    """The standard way in strict mode."""
    return standard(job, strict=True)
