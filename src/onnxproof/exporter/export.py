"""Module to ONNX file, with its dims left open and its assumptions kept."""

import io
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxproof.errors import ExportError, UsageError
from onnxproof.inputs.user_data import open_data
from onnxproof.options import ExportOptions
from onnxproof.preprocessing import pipelines
from onnxproof.reference import subject
from onnxproof.results import ExportRecord, Finding
from onnxproof.results.proof import Proof
from onnxproof.system import writing

if TYPE_CHECKING:
    from onnxproof.exporter.job import ExportedModel, Job

Tell = Callable[[str], None]


def prepare_subject(
    model: Any, example_inputs: Any, options: ExportOptions, dynamic_shapes: Any, data: Any
) -> subject.Subject:
    """Load what is to be exported; the user's data is opened before anything runs."""
    loaded = subject.load(
        model,
        example_inputs,
        dynamic_shapes=dynamic_shapes,
        data=data,
        inside=options.pipeline is None,
    )
    if options.pipeline is None:
        return replace(loaded, data=open_data(loaded.data))
    pipelines.require_preprocessing(loaded)
    return loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedExport:
    """What an export adds to the proof of its file."""

    record: ExportRecord
    findings: tuple[Finding, ...]
    guard_findings: tuple[Finding, ...]
    pipeline: pipelines.PipelineComparison | None

    def added_to(self, proof: Proof) -> Proof:
        """The proof with the record, and without findings that the export has already made."""
        codes = {finding.code for finding in self.findings} | {"batch-fixed"}  # the table tells it
        others = [finding for finding in proof.findings if finding.code not in codes]
        findings = (*self.guard_findings, *self.findings, *others)
        proof = replace(proof, export=self.record, findings=findings)
        if self.pipeline is None:
            return proof
        choices = {**self.record.choices, "pipeline": self.pipeline.summary}
        return replace(self.pipeline.add_to(proof), export=replace(self.record, choices=choices))


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of an export: the record, what was found on the way, and what is needed to try its assumptions."""

    record: ExportRecord
    findings: tuple[Finding, ...]
    job: "Job"
    model: "ExportedModel"

    def examined(self, path: Path, pipeline: Any) -> ExaminedExport:
        """The export with its guards tried on the file, and the deployment's pipeline beside its own."""
        guards, findings = self._try_guards(path)
        compared = None
        if pipeline is not None:
            compared = pipelines.compare(self.job.subject, pipeline, path)
        return ExaminedExport(
            record=replace(self.record, guards=guards),
            findings=self.findings,
            guard_findings=tuple(findings),
            pipeline=compared,
        )

    def _try_guards(self, path: Path) -> tuple[tuple[Any, ...], list[Finding]]:
        """The guards, each tried on both sides, and a finding for each size that the file accepts and they do not cover."""
        if self.model.capture is None or not self.model.guards:
            return self.record.guards, []
        from onnxproof.exporter.guard_checks import check_guards

        guards, findings = check_guards(
            self.model.guards, self.model.capture, self.job.example, self.model.rows, path
        )
        return tuple(guards), findings


def write(
    found: subject.Subject,
    path: Path,
    options: ExportOptions | None = None,
    *,
    backends: Sequence[str] = ("ort",),
    tell: Tell | None = None,
) -> Written:
    """Only the export: quiet, in eval mode, with the module left as it was found."""
    options = options or ExportOptions()
    _check(found, path)
    try:
        import torch  # noqa: F401 - whether it is there decides

        from onnxproof.exporter import (
            choices,
            guards,
            metadata,
            modes,
            removed_constants,
            translate,
        )
        from onnxproof.exporter.dim_spec import read_request
        from onnxproof.exporter.example import Example
        from onnxproof.exporter.fallbacks import export_with_fallbacks
        from onnxproof.exporter.job import Job
    except ImportError as why:
        raise ExportError(
            "torch-missing",
            f"exporting needs a package that isn't installed: {why.name or why}",
            help="pip install 'onnxproof[torch]'",
        ) from why
    tell = tell or (lambda _: None)
    tell("exporting")
    start = time.monotonic()
    example = Example(found)
    choices.check(options, example, backends)
    job = Job(
        subject=found,
        example=example,
        request=read_request(found, example, options),
        opset=choices.opset(options, backends),
        input_names=options.input_names,
        output_names=options.output_names,
    )
    failed: ExportError | None = None
    with quiet():
        made, attempts = export_with_fallbacks(job, tell)
        told = modes.find_training_layers(example, seconds=(time.monotonic() - start) * 0.05)
        findings = [
            *modes.find_state(example),
            *modes.find_dropped_cache(found.module),
            *(modes.find_random_nodes(made.capture.program) if made.capture is not None else []),
        ]
        if made.removed:
            findings.append(removed_constants.finding(made.removed))
        kept = tuple(item.guard for item in made.guards)
        extra = {**guards.to_metadata(made.rows, kept), **metadata.origin()}
        with writing.replace_file(path, what="the model") as draft:
            made.save(
                draft,
                extra,
                weight_bytes=translate.weight_bytes(found.module),
                external=options.external_data,
            )
            try:
                chosen, refused = choices.apply(draft, options, found, path)
            except ExportError as why:  # raised once the file is there: it is kept as it was exported, and the error says so
                failed = why
            apart = _drop_unused(draft)
    if failed is not None:
        raise failed
    record = ExportRecord(
        dims=made.rows,
        guards=kept,
        attempts=tuple(attempts),
        warnings=tuple(told.warnings),
        choices={**chosen, "external data": "yes" if apart else "no"},
        seconds=time.monotonic() - start,
    )
    return Written(record=record, findings=(*findings, *refused), job=job, model=made)


def _check(found: subject.Subject, path: Path) -> None:
    if found.onnx is not None:
        raise UsageError(
            "nothing-to-export",
            f"`{found.name}` is an ONNX file already",
            where=str(found.onnx),
            help="give a PyTorch module, or use `onnxproof diff`",
        )
    if found.arrays:
        raise UsageError(
            "not-pytorch",
            f"`{found.name}` is no module of PyTorch",
            where=found.origin,
            help="convert it with the converter of its own framework, and prove the file with `onnxproof verify`",
        )
    writing.check(path, what="the model", regular=True)


def _drop_unused(draft: Path) -> bool:
    """Remove weights beside the file that it no longer refers to; says whether there are others."""
    from onnxproof.onnxmodel import onnx_file

    beside = [file for file in draft.parent.iterdir() if file != draft]
    used = onnx_file.external_names(draft) if beside else []
    for file in beside:
        if file.name not in used:
            file.unlink()
    return bool(used)


@contextmanager
def quiet() -> Iterator[None]:
    """The exporter warns about its own inside; what the user must know is in our error or in the proof."""
    children = [
        logger
        for name, logger in list(logging.root.manager.loggerDict.items())
        if name.startswith("torch.") and isinstance(logger, logging.Logger)
    ]
    levels = [(logger, logger.level) for logger in children if logger.level]  # others inherit it
    log = logging.getLogger("torch")
    levels.append((log, log.level))
    silent = io.StringIO()
    with warnings.catch_warnings(), redirect_stdout(silent), redirect_stderr(silent):
        warnings.simplefilter("ignore")
        for logger, _ in levels:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in levels:
                logger.setLevel(level)
