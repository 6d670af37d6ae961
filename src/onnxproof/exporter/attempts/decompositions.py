"""Decompose the program down to core ATen before it is translated: torch.onnx keeps some composite operators whole."""

import torch

from onnxproof.errors import ExportError
from onnxproof.exporter.failures import Failure
from onnxproof.exporter.job import Job, Made, finish

ABOUT = "operators decomposed down to core ATen"
KINDS = ("operator", "other")


def applies(job: Job) -> bool:
    """What could not even be captured has nothing to decompose."""
    return job.drawn is not None


def run(job: Job, failure: Failure) -> Made:
    """The standard way's program with torch's whole table of decompositions; not where that table lacks the operator, since nothing would change."""
    if failure.operator and not any(
        str(known).startswith(failure.operator)
        for known in torch.export.default_decompositions().keys()  # noqa: SIM118 a table, not a dict
    ):
        raise ExportError("no-decomposition", f"torch has no decomposition of `{failure.operator}`")
    assert job.drawn is not None
    return finish(job, job.drawn, prepare=lambda program: program.run_decompositions())
