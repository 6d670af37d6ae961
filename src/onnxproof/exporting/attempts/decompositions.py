"""Decompose the program down to core ATen before it is translated: torch.onnx keeps some composite operators whole."""

from onnxproof.exporting.failures import Failure
from onnxproof.exporting.job import Job, Made, finish

ABOUT = "operators decomposed down to core ATen"
KINDS = ("operator", "other")


def applies(job: Job) -> bool:
    """What could not even be captured has nothing to decompose."""
    return job.drawn is not None


def run(job: Job, failure: Failure) -> Made:
    """The standard way's program with torch's whole table of decompositions."""
    assert job.drawn is not None
    return finish(job, job.drawn, prepare=lambda program: program.run_decompositions())
