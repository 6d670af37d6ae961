"""Put a replacement in the operator's place: one of ours, or one that another package registered."""

from typing import Any

from onnxproof.errors import ExportError
from onnxproof.exporter import replacements
from onnxproof.exporter.failures import Failure
from onnxproof.exporter.job import ExportedModel, Job, translate_model

ABOUT = "the operator replaced by others that ONNX has"
KINDS = ("operator", "other")


def applies(job: Job) -> bool:
    """A module that could not even be captured has no operator to replace."""
    return job.captured is not None


def attempt(job: Job, failure: Failure) -> ExportedModel:
    """The standard capture with the replacements that it needs; Python's own functions have a translation of their own."""
    assert job.captured is not None
    early, late = replacements.split_replacements(job.captured.capture.program)
    translations = replacements.translations()
    translated = [replacements.operator_name(target) for target in translations]
    if not early and not late and failure.operator not in translated:
        reason = "no operator of it has a replacement"
        if failure.operator:
            reason = f"no replacement of `{failure.operator}` is known"
        raise ExportError("no-replacement", reason)

    def decompose(program: Any) -> Any:
        return program.run_decompositions(early)

    prepare = decompose if early else None
    with replacements.registered(late):
        return translate_model(job, job.captured, prepare=prepare, table=translations)
