"""The standard way to export; where torch fails, the ways that are known to help, each proven before it is taken."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from onnxproof import prove
from onnxproof.errors import ExportError, OnnxproofError
from onnxproof.exporting import attempts as ways
from onnxproof.exporting import failures, translate
from onnxproof.exporting.capture import TorchFailed
from onnxproof.exporting.dims import BakedDim
from onnxproof.exporting.job import Job, Made, standard
from onnxproof.types import Attempt, Verdict

_TRIAL_S = 20.0
"""Seconds for the proof of an attempt that is not the standard way, before it is offered."""


def make(job: Job, tell: Callable[[str], None]) -> tuple[Made, list[Attempt]]:
    """The standard way; where it fails, what is known to help, each verified before it is taken."""
    try:
        return standard(job), []
    except (TorchFailed, BakedDim) as why:
        failed: TorchFailed | BakedDim = why
    failure = failures.Failure(kind="dims", what=failed.what.partition(": ")[2]) if isinstance(failed, BakedDim) \
        else failures.read(failed.__cause__ or failed, failed.program)
    made, attempts = _other_ways(job, failure, tell)  # outside of the except, so that its reasons are not mixed with theirs
    if made is not None:
        return made, attempts
    notes = [f"tried {attempt.name}: {attempt.what}" for attempt in attempts]
    if isinstance(failed, BakedDim):
        raise ExportError(failed.code, failed.what, where=failed.where, notes=[*failed.notes, *notes], help=failed.help)
    raise failure.error(job.found.name, notes) from failed.__cause__


def _other_ways(job: Job, failure: failures.Failure, tell: Callable[[str], None]) -> tuple[Made | None, list[Attempt]]:
    tried = [Attempt(name="standard", worked=False, what=failure.what)]
    for way in ways.ways(job, failure):
        tell(f"export failed; trying {way.name}")
        try:
            made = way.run(job, failure)
            verdict = _trial(job, made)
        except Exception as why:  # whatever it raises: this way does not help, and says why
            tried.append(Attempt(name=way.name, worked=False, what=_short(why)))
            continue
        if verdict in (Verdict.FAITHFUL, Verdict.DRIFT):
            return made, [*tried, Attempt(name=way.name, worked=True, what=f"{way.about}; verified: {verdict.value}")]
        tried.append(Attempt(name=way.name, worked=False, what=f"{way.about}; it exports, but the file is {verdict.value}"))
    return None, tried[1:]


def _trial(job: Job, made: Made) -> Verdict:
    """Prove a model before it is offered, on a copy that nobody else sees."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trial.onnx"
        if made.file is not None:
            shutil.copytree(made.file.parent, folder, dirs_exist_ok=True)  # with weights that lie beside it
            path = Path(folder) / made.file.name
        else:
            made.save(path, {}, weight=translate.weight(job.found.module), external=None)
        return prove.verify(job.found, path, budget_s=_TRIAL_S, explain=False).verdict


def _short(why: BaseException) -> str:
    return why.what if isinstance(why, OnnxproofError) else failures.read(why).what
