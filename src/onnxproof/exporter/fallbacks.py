"""The standard way to export; where torch fails, the ways that are known to help, each proven before it is taken."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from onnxproof.errors import ExportError, OnnxproofError
from onnxproof.exporter import attempts as ways
from onnxproof.exporter import failures, replacements, translate
from onnxproof.exporter.capture import TorchFailed, of_torch
from onnxproof.exporter.dims import BakedDim, Dims
from onnxproof.exporter.job import Drawn, Job, Made, draw, finish
from onnxproof.results import Attempt, Verdict
from onnxproof.system import temporary
from onnxproof.verification.evidence import Request
from onnxproof.verification.run import run

_TRIAL_S = 20.0
"""Seconds for the proof of an attempt that is not the standard way, before it is offered."""


def make(job: Job, tell: Callable[[str], None]) -> tuple[Made, list[Attempt]]:
    """The standard way; where it fails or fixes a dim that the module varies, what is known to help, each verified before it is taken."""
    try:
        job = replace(job, drawn=draw(job))
        assert job.drawn is not None
        made, tried = _opened(job, job.drawn, tell)
        return made or _finished(job, job.drawn), tried
    except (TorchFailed, BakedDim) as why:
        failed: TorchFailed | BakedDim = why
    failure = (
        failures.Failure(kind="dims", what=failed.what.partition(": ")[2])
        if isinstance(failed, BakedDim)
        else failures.read(failed.__cause__ or failed, failed.program)
    )
    made, attempts = _other_ways(
        job, failure, tell
    )  # outside of the except, so that its reasons are not mixed with theirs
    if made is not None:
        return made, attempts
    notes = [f"tried {attempt.name}: {attempt.what}" for attempt in attempts]
    if isinstance(failed, BakedDim):
        raise ExportError(
            failed.code,
            failed.what,
            where=failed.where,
            notes=[*failed.notes, *notes],
            help=failed.help,
        )
    raise failure.error(job.found.name, notes) from failed.__cause__


def _finished(job: Job, drawn: Drawn) -> Made:
    """The standard way's second half; where it would fail on an operator that a replacement is there for, it is not even begun."""
    if operator := replacements.lacking(drawn.captured.program):
        with of_torch(drawn.captured.program):
            raise failures.NoTranslation(operator)
    return finish(job, drawn)


_INT, _KEPT = "int(", "open sizes"
_OPENERS = ((_INT, "strict"), ("for ", "scripted"), ("while ", "scripted"))
"""Lines that fix a size when Python runs them, and the way that reads them instead: bytecode keeps an `int(size)` of any file open, TorchScript a loop."""


def _opened(
    job: Job, drawn: Drawn, tell: Callable[[str], None]
) -> tuple[Made | None, list[Attempt]]:
    """Where tracing fixed a dim that the module itself varies: the way that keeps it open, if its file is proven; else the reasons."""
    fixed = [row for row in drawn.dims.rows if row.baked and row.source is not None]
    words = [
        word
        for word, _ in _OPENERS
        if any(row.source is not None and word in row.source.text for row in fixed)
    ]
    tried: list[Attempt] = []
    if drawn.captured.closed and _INT in words:  # known without another capture
        words.remove(_INT)
        tried.append(Attempt(name=_KEPT, worked=False, what=drawn.captured.closed))
    for name in dict.fromkeys(way for word, way in _OPENERS if word in words):
        way = ways.named(name)
        tell(f"dims are fixed; trying {name}")
        try:
            other = way.run(
                job, failures.Failure(kind="dims", what="a dim that the module varies was fixed")
            )
            if not _opens_more(drawn.dims, other.dims):
                raise ExportError("still-fixed", "it fixes the same dims")
            verdict = _trial(job, other)
        except (
            Exception
        ) as why:  # whatever it raises: this way does not help, and the standard way is left
            tried.append(Attempt(name=name, worked=False, what=_short(why)))
            continue
        opened = ", ".join(f"{row.input}[{row.axis}]" for row in fixed)
        if verdict in (Verdict.FAITHFUL, Verdict.DRIFT):
            return other, [
                *tried,
                Attempt(
                    name=name,
                    worked=True,
                    what=f"{way.about}: keeps {opened} open; verified: {verdict.value}",
                ),
            ]
        tried.append(
            Attempt(
                name=name,
                worked=False,
                what=f"it keeps {opened} open, but not for all sizes: that file is {verdict.value}",
            )
        )
    return None, tried


def _opens_more(dims: Dims, other: Dims) -> bool:
    before, after = (
        {(row.input, row.axis) for row in which.rows if row.name} for which in (dims, other)
    )
    return before < after


def _other_ways(
    job: Job, failure: failures.Failure, tell: Callable[[str], None]
) -> tuple[Made | None, list[Attempt]]:
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
            return made, [
                *tried,
                Attempt(name=way.name, worked=True, what=f"{way.about}; verified: {verdict.value}"),
            ]
        tried.append(
            Attempt(
                name=way.name,
                worked=False,
                what=f"{way.about}; it exports, but the file is {verdict.value}",
            )
        )
    return None, tried[1:]


def _trial(job: Job, made: Made) -> Verdict:
    """Prove a model before it is offered, on a copy that nobody else sees."""
    with temporary.Folder() as folder:
        path = Path(folder) / "trial.onnx"
        if made.file is not None:
            shutil.copytree(
                made.file.parent, folder, dirs_exist_ok=True
            )  # with weights that lie beside it
            path = Path(folder) / made.file.name
        else:
            made.save(path, {}, weight=translate.weight(job.found.module), external=None)
        return run(Request(subject=job.found, path=path, budget_s=_TRIAL_S)).proof.verdict


def _short(why: BaseException) -> str:
    return why.what if isinstance(why, OnnxproofError) else failures.read(why).what
