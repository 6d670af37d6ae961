"""What the user may choose about the file: checked before the export, carried out after it."""

from collections.abc import Sequence
from pathlib import Path

import onnx

from onnxproof.errors import ExportError, UsageError
from onnxproof.exporter import opset as opsets
from onnxproof.exporter import optimizing, precision, sample_inputs
from onnxproof.exporter.example import Example
from onnxproof.options import ExportOptions
from onnxproof.reference.subject import Subject
from onnxproof.results import Finding


def check(options: ExportOptions, example: Example, backends: Sequence[str]) -> None:
    """Better now than after a minute of work."""
    opsets.check(options.opset, backends)
    precision.check(options.precision)
    optimizing.check(options.optimize)
    _names("--input-names", options.input_names, list(example.tensors))
    _names("--output-names", options.output_names, None)


def _names(option: str, given: Sequence[str], known: Sequence[str] | None) -> None:
    if known is not None and given and len(given) != len(known):
        raise UsageError(
            "names",
            f"`{option}` gives {len(given)} names for {len(known)} tensors",
            notes=[f"they are {', '.join(known)}"],
        )
    twice = sorted(
        {name for name in given if given.count(name) > 1}
        if isinstance(given, list | tuple)
        else set()
    )
    if twice:
        raise UsageError("names", f"`{option}` gives the name `{twice[0]}` twice")


def opset(options: ExportOptions, backends: Sequence[str]) -> int | None:
    """The opset asked for; else torch's own, lowered where a chosen runtime can't read it, and None where torch may choose."""
    if options.opset is not None:
        return options.opset
    from torch.onnx import _constants

    usual = int(getattr(_constants, "ONNX_DEFAULT_OPSET", 0))
    lowered = opsets.choose(usual, backends) if usual else 0
    return lowered if lowered < usual else None


def apply(
    path: Path, options: ExportOptions, found: Subject, shown: Path
) -> tuple[dict[str, str], list[Finding]]:
    """Optimise, then lower the precision; what was done, and what was refused. `shown` is the file's name in messages: `path` is a draft of it."""
    chosen: dict[str, str] = {}
    findings: list[Finding] = []
    if options.optimize is not None:
        chosen["optimised"], findings = optimizing.optimise(path, options.optimize)
    if options.precision is not None:
        chosen["precision"] = _lowered(path, options.precision, found, shown)
    written = onnx.load(path, load_external_data=False)
    version = next(
        (entry.version for entry in written.opset_import if entry.domain in ("", "ai.onnx")), 0
    )
    chosen["opset"] = str(version)
    if options.opset is not None and version != options.opset:
        findings.append(
            Finding(
                code="opset-kept",
                what=f"opset {options.opset} was asked for, and the file has {version}: torch could not convert it",
                help=f"take {version}, or rewrite what the older opset lacks",
            )
        )
    return chosen, findings


def _lowered(path: Path, kind: str, found: Subject, shown: Path) -> str:
    try:
        return precision.lower(path, kind, sample_inputs.feeds(found, path)).words()
    except Exception as why:  # the converter and the runtime raise classes of their own
        if isinstance(why, UsageError) and why.code == "cannot-write":
            raise
        raise ExportError(
            "precision-failed",
            f"the file can't be lowered to {kind}: {type(why).__name__}: {str(why)[:300]}",
            where=str(shown),
            notes=["the float32 file is kept as it was exported"],
            help="export without --precision, or convert it with a tool of your own and `onnxproof verify` it",
        ) from why
