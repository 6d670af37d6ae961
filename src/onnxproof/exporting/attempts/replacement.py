"""Put a replacement in the operator's place: ours, or one that another package registered."""

from onnxproof.exporting import replacements
from onnxproof.exporting.failures import Failure
from onnxproof.exporting.job import Job, Made, finish

ABOUT = "the operator replaced by others that ONNX has"
KINDS = ("operator", "other")


def applies(job: Job) -> bool:
    """What could not even be captured has no operator to replace."""
    return job.drawn is not None


def run(job: Job, failure: Failure) -> Made:
    """The standard way's program with the table of replacements; Python's own functions are translated as they stand."""
    assert job.drawn is not None
    table = replacements.table()
    return finish(job, job.drawn, prepare=lambda program: program.run_decompositions(table), table=replacements.translations())
