"""One export: what is asked for, and the standard route in two stages: capture the program with its dims, then translate it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from onnxproof.exporter import translate
from onnxproof.exporter.capture import Capture, capture_program, torch_failures
from onnxproof.exporter.dims import DimRequest, Dims, Limits, resolve_dims
from onnxproof.exporter.example import Example, Place, Sizes, enlarge_ones
from onnxproof.exporter.guards import CheckableGuard, collect_guards, holds
from onnxproof.exporter.removed_constants import RemovedConstant, find_removed
from onnxproof.exporter.symbolic_int import capture_with_open_int
from onnxproof.reference.restore import RestoreModule
from onnxproof.reference.subject import Subject
from onnxproof.results import ExportedDim
from onnxproof.system import temporary


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be exported, and how the user wants it."""

    subject: Subject
    example: Example
    request: DimRequest
    opset: int | None = None
    input_names: Sequence[str] = ()
    output_names: Sequence[str] = ()
    captured: "CapturedModel | None" = None
    """The capture of the standard route, for the attempts that only translate it differently: nothing is captured twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedModel:
    """A captured program with its dims resolved: all that is known before it is translated, which takes most of the time."""

    capture: Capture
    dims: Dims
    guards: Sequence[CheckableGuard]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedModel:
    """A model that is ready to be saved: torch's ONNX program, or a file that the TorchScript exporter wrote."""

    program: Any = None
    folder: temporary.Folder | None = None
    """Where that file is; it is deleted with the last reference to it."""
    capture: Capture | None = None
    dims: Dims = field(default_factory=lambda: Dims(rows=(), names={}))
    guards: Sequence[CheckableGuard] = ()
    removed: Sequence[RemovedConstant] = ()
    """What torch.onnx's rewriter removed although it changes the answers."""

    @property
    def file(self) -> Path | None:
        """The file of the TorchScript exporter, if there is one."""
        if self.folder is None:
            return None
        return self.folder.path / "model.onnx"

    @property
    def rows(self) -> tuple[ExportedDim, ...]:
        """One row for each dim."""
        return self.dims.rows

    def save(
        self,
        path: Path,
        metadata: Mapping[str, str],
        *,
        weight_bytes: int,
        external: bool | None,
    ) -> None:
        """Write the model, with its weights in a file of their own if that is asked for or necessary."""
        external_data = translate.needs_external_data(weight_bytes, external)
        if self.program is not None:
            translate.save(self.program, path, metadata, external=external_data)
            return
        import onnx

        assert self.file is not None
        model = onnx.load(self.file)
        own_metadata = {prop.key: prop.value for prop in model.metadata_props}
        onnx.helper.set_model_props(model, {**own_metadata, **metadata})
        onnx.save(model, path, save_as_external_data=external_data, location=f"{path.name}.data")


def capture_and_translate(job: Job, *, strict: bool = False) -> ExportedModel:
    """The standard route: both stages."""
    return translate_model(job, capture_model(job, strict=strict))


def capture_model(job: Job, *, strict: bool = False) -> CapturedModel:
    """The first stage: capture the program, resolve its dims, collect its guards."""
    start = time.monotonic()
    capture = _capture(job, strict=strict)
    seconds = time.monotonic() - start
    dims = resolve_dims(
        capture, job.example, job.request, subject=job.subject.name, seconds=seconds
    )
    return CapturedModel(capture=capture, dims=dims, guards=collect_guards(capture, dims))


def translate_model(
    job: Job,
    captured: CapturedModel,
    *,
    prepare: Callable[[Any], Any] | None = None,
    table: Mapping[Any, Any] | None = None,
    optimize: bool = True,
) -> ExportedModel:
    """The second stage: translate the program to ONNX; `prepare` may return a rewritten program, the captured one stays unchanged."""
    program = captured.capture.program
    names = job.output_names or translate.output_names(program, list(job.example.tensors))
    with RestoreModule(job.subject.module), torch.no_grad(), torch_failures(program):
        prepared = prepare(program) if prepare else program
        onnx_program = translate.translate(
            prepared,
            opset=job.opset,
            input_names=job.input_names,
            output_names=names,
            table=table,
            optimize=optimize,
        )
    dim_names = {str(symbol): name for symbol, name in captured.dims.written.items()}
    translate.rename_dims(onnx_program.model, dim_names)
    return ExportedModel(
        program=onnx_program,
        capture=captured.capture,
        dims=captured.dims,
        guards=captured.guards,
        removed=find_removed(onnx_program),
    )


def _capture(job: Job, *, strict: bool) -> Capture:
    """Dims of size 0 and 1 are enlarged for the capture, unless the guards then do not hold for the example itself."""
    open_dims = job.request.open_dims(job.example)
    fixed = [place for place in job.example.places() if place not in open_dims]
    larger = enlarge_ones(job.example, fixed)
    capture = _capture_at(job, open_dims, larger, strict=strict)
    if not larger or _covers_example(capture, job.example):
        return capture
    return _capture_at(job, open_dims, {}, strict=strict)


def _capture_at(
    job: Job,
    open_dims: Mapping[Place, Limits],
    sizes: Sizes,
    *,
    strict: bool,
) -> Capture:
    """Capture with some dims of the example at other sizes."""
    # a dim of size 0 or 1 that could not be enlarged stays fixed, since torch takes it for one that is broadcast
    large_dims = {
        place: limits
        for place, limits in open_dims.items()
        if place in sizes or job.example.size(place) > 1
    }

    def take() -> Capture:
        module = job.subject.module
        with RestoreModule(
            module
        ):  # each time: a capture that was stopped may leave changes in the module
            return capture_program(
                module,
                job.example,
                open_dims=large_dims,
                sizes=sizes,
                strict=strict,
            )

    if strict:
        return take()  # reads the bytecode, where `int(size)` keeps it open
    capture, reason = capture_with_open_int(take, job.example, sizes)
    return replace(capture, int_reason=reason)


def _covers_example(capture: Capture, example: Example) -> bool:
    sizes = {symbol: example.size(place) for symbol, place in capture.symbols.items()}
    for assumption in capture.assumptions:
        symbols = [s for s in assumption.expression.free_symbols if s in sizes]
        if not holds(assumption.expression, {s: sizes[s] for s in symbols}):
            return False
    return True
