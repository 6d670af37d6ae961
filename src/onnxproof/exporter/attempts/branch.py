"""Turn a Python `if` on a tensor's value into torch.where: both branches are computed, and the value selects one."""

from dataclasses import replace

from onnxproof.exporter.example import Example
from onnxproof.exporter.failures import Failure
from onnxproof.exporter.job import ExportedModel, Job, capture_and_translate
from onnxproof.exporter.rewriting import rewritten_branch

ABOUT = "the branch on a value rewritten with torch.where"
KINDS = ("data-dependent",)


def attempt(job: Job, failure: Failure) -> ExportedModel:
    """The standard route while the method around the failing line is replaced by its rewritten form."""
    with rewritten_branch(job.subject.module, failure.file, failure.line):
        # a new example: the old one would restore the method
        return capture_and_translate(replace(job, example=Example(job.subject)))
