"""Decompose the program down to core ATen before it is translated: torch.onnx keeps some composite operators whole."""

import torch

from onnxproof.errors import ExportError
from onnxproof.exporter.failures import Failure
from onnxproof.exporter.job import ExportedModel, Job, translate_model

ABOUT = "operators decomposed down to core ATen"
KINDS = ("operator", "other")


def applies(job: Job) -> bool:
    """A module that could not even be captured has nothing to decompose."""
    return job.captured is not None


def attempt(job: Job, failure: Failure) -> ExportedModel:
    """The standard capture with torch's whole table of decompositions; if that table lacks the operator, nothing would change."""
    table = torch.export.default_decompositions()
    known = [str(operator) for operator in table.keys()]  # noqa: SIM118 a table, not a dict
    if failure.operator and not any(name.startswith(failure.operator) for name in known):
        raise ExportError("no-decomposition", f"torch has no decomposition of `{failure.operator}`")
    assert job.captured is not None
    return translate_model(job, job.captured, prepare=lambda program: program.run_decompositions())
