"""Leave out torch.onnx's rewriter, which takes small constants for 0 and factors near 1 for 1, and removes them."""

from onnxproof.exporter.failures import Failure
from onnxproof.exporter.job import ExportedModel, Job, translate_model

ABOUT = "without torch.onnx's rewriter"
KINDS = ("constants",)


def applies(job: Job) -> bool:
    """Only a program that was captured can be translated."""
    return job.captured is not None


def attempt(job: Job, failure: Failure) -> ExportedModel:
    """The standard capture, translated and left as it is."""
    assert job.captured is not None
    return translate_model(job, job.captured, optimize=False)
