"""Turn a Python `if` on a tensor's value into torch.where: both ways are computed, and the value chooses."""

from dataclasses import replace

from onnxproof.exporter.example import Example
from onnxproof.exporter.failures import Failure
from onnxproof.exporter.job import Job, Made, standard
from onnxproof.exporter.rewriting import without_branch

ABOUT = "the branch on a value rewritten with torch.where"
KINDS = ("data-dependent",)


def run(job: Job, failure: Failure) -> Made:
    """The standard way while the method around the failing line is replaced by its rewritten form."""
    with without_branch(job.found.module, failure.file, failure.line):
        return standard(
            replace(job, example=Example(job.found))
        )  # an example of its own: the old one would put the method back
