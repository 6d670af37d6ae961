"""Put a replacement in the operator's place: ours, or one that another package registered."""

from onnxproof.exporting import replacements
from onnxproof.exporting.failures import Failure
from onnxproof.exporting.job import Job, Made, standard

ABOUT = "the operator replaced by others that ONNX has"
KINDS = ("operator", "other")


def run(job: Job, failure: Failure) -> Made:
    """The standard way with the table of replacements; Python's own functions are translated as they stand."""
    table = replacements.table()
    return standard(job, prepare=lambda program: program.run_decompositions(table), table=replacements.translations())
