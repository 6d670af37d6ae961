"""Module to ONNX file, with its dims left open and its assumptions kept, then straight into the proof that the file says the same."""

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
from onnxproof.inputs.user_data import opened
from onnxproof.options import ExportOptions
from onnxproof.preprocessing import pipelines
from onnxproof.reference import subject
from onnxproof.results import ExportRecord, Finding
from onnxproof.system import writing
from onnxproof.verification import run

if TYPE_CHECKING:
    from onnxproof.exporter.job import ExportedModel, Job
    from onnxproof.options import Policy, Serving
    from onnxproof.results.proof import Proof

Tell = Callable[[str], None]


def export(
    model: Any,
    example_inputs: Any,
    path: str | Path,
    *,
    dynamic_shapes: Any = None,
    opset: int | None = None,
    options: ExportOptions | None = None,
    data: Any = None,
    backends: Sequence[str] = ("ort",),
    policy: "Policy | None" = None,
    budget_s: float = 60.0,
    seed: int = 0,
    explain: bool = True,
    only: Sequence[str] = (),
    serving: "Serving | None" = None,
    progress: run.Report | None = None,
    profile: bool = False,
) -> "Proof":
    """Export a module to an ONNX file and prove that the file says what the module says.

    Without `dynamic_shapes`, every dim that can vary does; `proof.export` tells which, what the others are fixed by, and what was assumed.

    >>> import torch, onnxproof
    >>> onnxproof.export(torch.nn.Linear(4, 2), (torch.randn(3, 4),), "linear.onnx").verdict      # doctest: +SKIP
    <Verdict.FAITHFUL: 'faithful'>
    """
    asked = options or ExportOptions()
    asked = asked if opset is None else replace(asked, opset=opset)
    found = subject.load(
        model,
        example_inputs,
        dynamic_shapes=dynamic_shapes,
        data=data,
        inside=asked.pipeline is None,
    )
    if asked.pipeline is not None:
        pipelines.require_preprocessing(found)
    else:
        found = replace(found, data=opened(found.data))
    written = write(found, Path(path), asked, backends=backends, tell=_teller(progress, budget_s))
    guards, findings = written.try_guards(Path(path))
    piped = (
        pipelines.compare(found, asked.pipeline, Path(path)) if asked.pipeline is not None else None
    )

    def completed(proof: "Proof") -> "Proof":
        kept = [
            finding
            for finding in proof.findings
            if finding.code not in {mine.code for mine in written.findings}
        ]
        proof = replace(
            proof,
            export=replace(written.record, guards=guards),
            findings=(*findings, *written.findings, *kept),
        )
        return _with_pipeline(proof, piped) if piped else proof

    return completed(
        run.verify(
            replace(found, data=None, preprocess=None) if piped else found,
            path,
            backends=backends,
            policy=policy,
            budget_s=budget_s,
            seed=seed,
            explain=explain,
            only=only,
            serving=serving,
            progress=run.with_proofs(progress, completed),
            profile=profile,
        )
    )


def _teller(progress: run.Report | None, budget_s: float) -> Tell:
    """Says through the progress bar what the export is at."""
    start = time.monotonic()

    def tell(what: str) -> None:
        if progress is not None:
            progress(
                run.Progress(case=what, done=0, elapsed=time.monotonic() - start, budget=budget_s)
            )

    return tell


def _with_pipeline(proof: "Proof", compared: pipelines.PipelineComparison) -> "Proof":
    assert proof.export is not None
    record = replace(proof.export, choices={**proof.export.choices, "pipeline": compared.summary})
    return replace(compared.add_to(proof), export=record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of an export: the record, what was found on the way, and what is needed to try its assumptions."""

    record: ExportRecord
    findings: tuple[Finding, ...]
    job: "Job"
    model: "ExportedModel"

    def try_guards(self, path: Path) -> tuple[tuple[Any, ...], list[Finding]]:
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

        from onnxproof.exporter import choices, guards, metadata, modes, translate
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
            *(modes.find_random_nodes(made.capture.program) if made.capture is not None else []),
        ]
        kept = tuple(item.guard for item in made.guards)
        extra = {**guards.to_metadata(made.rows, kept), **metadata.origin()}
        with writing.replacing(path, what="the model") as draft:
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
    log = logging.getLogger("torch")
    children = [
        logging.getLogger(name)
        for name in list(logging.root.manager.loggerDict)
        if name.startswith("torch.")
    ]
    levels = [(logger, logger.level) for logger in (log, *children)]
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
