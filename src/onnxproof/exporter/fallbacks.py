"""The standard route of an export; where torch fails, the attempts that are known to help, each verified before it is taken."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from onnxproof.errors import ExportError, OnnxproofError
from onnxproof.exporter import attempts, failures, replacements, translate
from onnxproof.exporter.capture import TorchFailed, torch_failures
from onnxproof.exporter.dims import BakedDim, Dims
from onnxproof.exporter.job import (
    CapturedModel,
    ExportedModel,
    Job,
    capture_model,
    translate_model,
)
from onnxproof.results import Attempt, ExportedDim, Verdict
from onnxproof.system import temporary
from onnxproof.verification.evidence import Request
from onnxproof.verification.run import run

Tell = Callable[[str], None]
TRIAL_S = 20.0
"""Seconds for the verification of an attempt, before it is taken. Not measured."""
_INT = "int("
_REOPENING = {_INT: "strict", "for ": "scripted", "while ": "scripted"}
"""Code that fixes a size when Python runs it, and the attempt that reads it instead: bytecode keeps `int(size)` of any file open, TorchScript a loop."""


def export_with_fallbacks(job: Job, tell: Tell) -> tuple[ExportedModel, list[Attempt]]:
    """The standard route; if it fails or fixes a dim that the module varies, the attempts that may help.

    1. Capture. If a dim is baked, take an attempt that keeps it open.
    2. Translate what was captured. If the rewriter removed a constant, take the file without it.
    3. If torch fails at either, take the first attempt whose file is verified.
    4. If none is, raise torch's failure in the user's terms.
    """
    try:
        captured = capture_model(job)
        job = replace(job, captured=captured)
        model, tried = _reopen_dims(job, captured, tell)  # step 1
        if model is None:
            model = _translate(job, captured)  # step 2
        model, more = _keep_constants(job, model, tell)
        return model, [*tried, *more]
    except (TorchFailed, BakedDim) as why:
        failed: TorchFailed | BakedDim = why
    # outside of the except, so that the exceptions of attempts are not chained to this one
    failure = _read_failure(failed)
    model, tried = _try_attempts(job, failure, tell)  # step 3
    if model is not None:
        return model, tried
    notes = [f"tried {attempt.name}: {attempt.what}" for attempt in tried]
    if isinstance(failed, BakedDim):  # step 4
        raise ExportError(
            failed.code,
            failed.what,
            where=failed.where,
            notes=[*failed.notes, *notes],
            help=failed.help,
        )
    raise failure.error(job.subject.name, notes) from failed.__cause__


def _read_failure(failed: TorchFailed | BakedDim) -> failures.Failure:
    if isinstance(failed, BakedDim):
        return failures.Failure(kind="dims", what=failed.what.partition(": ")[2])
    return failures.read_failure(failed.__cause__ or failed, failed.program)


def _translate(job: Job, captured: CapturedModel) -> ExportedModel:
    """The standard translation; it is not begun if it would fail on an operator that has a replacement."""
    program = captured.capture.program
    operator = replacements.find_untranslated(program)
    if operator:
        with torch_failures(program):
            raise failures.NoTranslation(operator)
    return translate_model(job, captured)


def _keep_constants(
    job: Job,
    model: ExportedModel,
    tell: Tell,
) -> tuple[ExportedModel, list[Attempt]]:
    """If torch's rewriter removed constants that are not 0 or 1: the file without it, if that is verified; else the model as it is."""
    if not model.removed:
        return model, []
    names = ", ".join(dict.fromkeys(str(item) for item in model.removed))
    failure = failures.Failure(kind="constants", what=f"torch.onnx's rewriter removed {names}")
    unchanged, tried = _try_attempts(job, failure, tell)
    return unchanged or model, tried


def _reopen_dims(
    job: Job,
    captured: CapturedModel,
    tell: Tell,
) -> tuple[ExportedModel | None, list[Attempt]]:
    """If tracing fixed a dim that the module varies: the attempt that keeps it open, if its file is verified; else the reasons."""
    baked = [row for row in captured.dims.rows if row.baked and row.source is not None]
    dims = ", ".join(f"{row.input}[{row.axis}]" for row in baked)
    failure = failures.Failure(kind="dims", what="a dim that the module varies was fixed")
    names, tried = _reopening_attempts(baked, captured.capture.int_reason)
    for name in names:
        fallback = attempts.load(name)
        tell(f"dims are fixed; trying {name}")
        try:
            model = fallback.attempt(job, failure)
            if not _opens_more(captured.dims, model.dims):
                raise ExportError("still-fixed", "it fixes the same dims")
            verdict = _verify(job, model)
        except Exception as why:  # any class: this attempt does not help, and the next is tried
            tried.append(Attempt(name=name, worked=False, what=_short_reason(why)))
            continue
        if verdict in (Verdict.FAITHFUL, Verdict.DRIFT):
            what = f"{fallback.about}: keeps {dims} open; verified: {verdict.value}"
            return model, [*tried, Attempt(name=name, worked=True, what=what)]
        what = f"it keeps {dims} open, but not for all sizes: that file is {verdict.value}"
        tried.append(Attempt(name=name, worked=False, what=what))
    return None, tried


def _reopening_attempts(
    baked: list[ExportedDim],
    int_reason: str,
) -> tuple[list[str], list[Attempt]]:
    """The attempts that read the lines by which dims were baked, and a record of what is known without another capture."""
    codes = [code for code in _REOPENING if _contains(baked, code)]
    tried: list[Attempt] = []
    if int_reason and _INT in codes:
        codes.remove(_INT)
        tried.append(Attempt(name="open sizes", worked=False, what=int_reason))
    names = dict.fromkeys(_REOPENING[code] for code in codes)
    return list(names), tried


def _contains(rows: list[ExportedDim], code: str) -> bool:
    """Whether a line that fixed one of the dims contains this code."""
    return any(row.source is not None and code in row.source.text for row in rows)


def _opens_more(dims: Dims, other: Dims) -> bool:
    return _open_dims(dims) < _open_dims(other)


def _open_dims(dims: Dims) -> set[tuple[str, int]]:
    return {(row.input, row.axis) for row in dims.rows if row.name}


def _try_attempts(
    job: Job,
    failure: failures.Failure,
    tell: Tell,
) -> tuple[ExportedModel | None, list[Attempt]]:
    """The first attempt whose file is verified, after the record of those before it; else what became of each."""
    tried: list[Attempt] = []
    for fallback in attempts.applicable(job, failure):
        tell(f"{failure.headline}; trying {fallback.name}")
        try:
            model = fallback.attempt(job, failure)
            verdict = _verify(job, model)
        except Exception as why:  # any class: this attempt does not help, and the record says why
            tried.append(Attempt(name=fallback.name, worked=False, what=_short_reason(why)))
            continue
        if verdict in (Verdict.FAITHFUL, Verdict.DRIFT):
            standard = Attempt(name="standard", worked=False, what=failure.what)
            what = f"{fallback.about}; verified: {verdict.value}"
            return model, [standard, *tried, Attempt(name=fallback.name, worked=True, what=what)]
        what = f"{fallback.about}; it exports, but the file is {verdict.value}"
        tried.append(Attempt(name=fallback.name, worked=False, what=what))
    return None, tried


def _verify(job: Job, model: ExportedModel) -> Verdict:
    """Verify a model before it is taken, in a folder of its own."""
    with temporary.Folder() as folder:
        path = Path(folder) / "trial.onnx"
        if model.file is not None:
            # with the weights that lie beside it
            shutil.copytree(model.file.parent, folder, dirs_exist_ok=True)
            path = Path(folder) / model.file.name
        else:
            weight_bytes = translate.weight_bytes(job.subject.module)
            model.save(path, {}, weight_bytes=weight_bytes, external=None)
        request = Request(subject=job.subject, path=path, budget_s=TRIAL_S)
        return run(request).proof.verdict


def _short_reason(why: BaseException) -> str:
    if isinstance(why, OnnxproofError):
        return why.what
    return failures.read_failure(why).what
