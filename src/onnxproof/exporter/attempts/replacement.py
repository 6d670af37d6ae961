"""Put a replacement in the operator's place: ours, or one that another package registered."""

from onnxproof.errors import ExportError
from onnxproof.exporter import replacements
from onnxproof.exporter.failures import Failure
from onnxproof.exporter.job import Job, Made, finish

ABOUT = "the operator replaced by others that ONNX has"
KINDS = ("operator", "other")


def applies(job: Job) -> bool:
    """What could not even be captured has no operator to replace."""
    return job.drawn is not None


def run(job: Job, failure: Failure) -> Made:
    """The standard way's program with the replacements that it needs; Python's own functions are translated as they stand."""
    assert job.drawn is not None
    early, late = replacements.split(job.drawn.captured.program)
    own = replacements.translations()
    if (
        not early
        and not late
        and failure.operator not in [replacements.name_of(target) for target in own]
    ):
        raise ExportError(
            "no-replacement",
            f"no replacement of `{failure.operator}` is known"
            if failure.operator
            else "no operator of it has a replacement",
        )
    with replacements.registered(late):
        return finish(
            job,
            job.drawn,
            prepare=(lambda program: program.run_decompositions(early)) if early else None,
            table=own,
        )
