"""Compile the module with TorchScript, which keeps loops and branches, and let the older exporter translate it."""

from typing import Any

import torch

from onnxproof.exporter.attempts.traced import export_with_torchscript
from onnxproof.exporter.failures import Failure
from onnxproof.exporter.job import ExportedModel, Job

ABOUT = (
    "compiled by TorchScript, which keeps loops and branches, and exported by the older exporter"
)
KINDS = ("data-dependent", "dims", "operator", "torchscript", "other")


def attempt(job: Job, failure: Failure) -> ExportedModel:
    """Compile first: a loop over a length becomes a Loop of ONNX."""
    scripted: Any = torch.jit.script(job.subject.module)
    return export_with_torchscript(job, scripted)
