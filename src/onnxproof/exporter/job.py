"""One export: what is asked for, and the standard way from the module to a translated program, in two halves: drawn, then finished."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from onnxproof.exporter import translate
from onnxproof.exporter.capture import Captured, capture, of_torch
from onnxproof.exporter.dims import Dims, Wishes, settle
from onnxproof.exporter.example import Example, Place, enlarge_ones
from onnxproof.exporter.guards import Assumed, collect, holds
from onnxproof.exporter.symbolic_int import keeping_sizes
from onnxproof.reference.restore import RestoreModule
from onnxproof.reference.subject import Subject
from onnxproof.results import ExportedDim
from onnxproof.system import temporary


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be exported, and how the user wants it."""

    found: Subject
    example: Example
    wishes: Wishes
    opset: int | None = None
    input_names: Sequence[str] = ()
    output_names: Sequence[str] = ()
    drawn: "Drawn | None" = None
    """What the standard way captured, for the ways that only translate it otherwise: nothing is captured twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A model that is ready to be written: torch's ONNX program, or a file that the TorchScript exporter wrote."""

    program: Any = None
    folder: temporary.Folder | None = None
    """Where that file is; it goes with the last who holds it."""
    captured: Captured | None = None
    dims: Dims = field(default_factory=lambda: Dims(rows=(), names={}))
    assumed: Sequence[Assumed] = ()

    @property
    def file(self) -> Path | None:
        """The file that is there already."""
        return self.folder.path / "model.onnx" if self.folder is not None else None

    @property
    def rows(self) -> tuple[ExportedDim, ...]:
        """One row a dim."""
        return self.dims.rows

    def save(
        self, path: Path, metadata: Mapping[str, str], *, weight: int, external: bool | None
    ) -> bool:
        """Write it; says whether the weights went into a file of their own."""
        if self.program is not None:
            return translate.save(self.program, path, metadata, weight=weight, external=external)
        import onnx

        assert self.file is not None
        model = onnx.load(self.file)
        onnx.helper.set_model_props(
            model, {**{prop.key: prop.value for prop in model.metadata_props}, **metadata}
        )
        apart = translate.apart(weight, external)
        onnx.save(model, path, save_as_external_data=apart, location=f"{path.name}.data")
        return apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A captured program with its dims settled: all that is known before it is translated, which is most of the price."""

    captured: Captured
    dims: Dims
    assumed: Sequence[Assumed]


def standard(job: Job, *, strict: bool = False) -> Made:
    """Capture, settle the dims, translate."""
    return finish(job, draw(job, strict=strict))


def draw(job: Job, *, strict: bool = False) -> Drawn:
    """Capture, and settle the dims."""
    start = time.monotonic()
    captured = _captured(job, strict=strict)
    dims = settle(
        captured, job.example, job.wishes, subject=job.found.name, seconds=time.monotonic() - start
    )
    return Drawn(captured=captured, dims=dims, assumed=collect(captured, dims))


def finish(
    job: Job,
    drawn: Drawn,
    *,
    prepare: Callable[[Any], Any] | None = None,
    table: Mapping[Any, Any] | None = None,
) -> Made:
    """Translate; `prepare` may rewrite the captured program before, which is left as it was."""
    captured, dims = drawn.captured, drawn.dims
    names = job.output_names or translate.output_names(captured.program, list(job.example.tensors))
    with RestoreModule(job.found.module), torch.no_grad(), of_torch(captured.program):
        program = prepare(captured.program) if prepare else captured.program
        made = translate.translate(
            program, opset=job.opset, input_names=job.input_names, output_names=names, table=table
        )
    translate.rename_dims(made.model, {str(symbol): name for symbol, name in dims.written.items()})
    return Made(program=made, captured=captured, dims=dims, assumed=drawn.assumed)


def _captured(job: Job, *, strict: bool) -> Captured:
    """Dims of size 0 and 1 are enlarged for the capture, unless what is assumed then does not hold for the example itself."""
    opened = job.wishes.opened(job.example)
    fixed = [place for place in job.example.places() if place not in opened]
    larger = enlarge_ones(job.example, fixed)
    captured = _once(job, opened, larger, strict=strict)
    return (
        captured
        if not larger or _covers_example(captured, job.example)
        else _once(job, opened, {}, strict=strict)
    )


def _once(
    job: Job, opened: Mapping[Place, Any], larger: Mapping[Place, int], *, strict: bool
) -> Captured:
    def take() -> Captured:
        with RestoreModule(
            job.found.module
        ):  # for each: what a capture that was stopped left in the module would be in the next
            return capture(
                job.found.module,
                job.example,
                open_dims=_without_ones(opened, job, larger),
                sizes=larger,
                strict=strict,
            )

    if strict:
        return take()  # reads the bytecode, where `int(size)` keeps it open
    captured, reason = keeping_sizes(take, job.example, larger)
    return replace(captured, closed=reason)


def _without_ones(
    opened: Mapping[Place, Any], job: Job, larger: Mapping[Place, int]
) -> dict[Place, Any]:
    """A dim of size 0 or 1 that could not be enlarged stays fixed, since torch takes it for one that is broadcast."""
    return {
        place: limits
        for place, limits in opened.items()
        if place in larger or job.example.size(place) > 1
    }


def _covers_example(captured: Captured, example: Example) -> bool:
    sizes = {symbol: example.size(place) for symbol, place in captured.symbols.items()}
    return all(
        holds(
            assumption.expression,
            {s: sizes[s] for s in assumption.expression.free_symbols if s in sizes},
        )
        for assumption in captured.assumptions
    )
