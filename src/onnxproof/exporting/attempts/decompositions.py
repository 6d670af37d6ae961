"""Decompose the program down to core ATen before it is translated: torch.onnx keeps some composite operators whole."""

from onnxproof.exporting.failures import Failure
from onnxproof.exporting.job import Job, Made, standard

ABOUT = "operators decomposed down to core ATen"
KINDS = ("operator", "other")


def run(job: Job, failure: Failure) -> Made:
    """The standard way with torch's whole table of decompositions."""
    return standard(job, prepare=lambda program: program.run_decompositions())
