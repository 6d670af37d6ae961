"""What the user may choose about the file: checked before the export, carried out after it."""

from collections import Counter
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


def check(
    options: ExportOptions,
    example: Example,
    backends: Sequence[str],
) -> None:
    """Refuse what can't be done before the export, not after a minute of work."""
    opsets.check(options.opset, backends)
    precision.check(options.precision)
    optimizing.check(options.optimize)
    _check_names("--input-names", options.input_names, list(example.tensors))
    _check_names("--output-names", options.output_names, None)


def _check_names(
    option: str,
    names: Sequence[str],
    tensors: Sequence[str] | None,
) -> None:
    if tensors is not None and names and len(names) != len(tensors):
        raise UsageError(
            "names",
            f"`{option}` gives {len(names)} names for {len(tensors)} tensors",
            notes=[f"they are {', '.join(tensors)}"],
        )
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise UsageError("names", f"`{option}` gives the name `{twice[0]}` twice")


def opset(options: ExportOptions, backends: Sequence[str]) -> int | None:
    """The opset asked for; else torch's default, lowered if a chosen runtime can't read it, and None if torch may choose."""
    if options.opset is not None:
        return options.opset
    from torch.onnx import _constants

    default = int(getattr(_constants, "ONNX_DEFAULT_OPSET", 0))
    if not default:
        return None
    readable = opsets.choose(default, backends)
    if readable == default:
        return None
    return readable


def apply(
    path: Path,
    options: ExportOptions,
    subject: Subject,
    shown: Path,
) -> tuple[dict[str, str], list[Finding]]:
    """Optimise, then lower the precision; what was done, and what was refused. `shown` is the file's name in messages, `path` a draft of it."""
    chosen: dict[str, str] = {}
    findings: list[Finding] = []
    if options.optimize is not None:
        chosen["optimised"], findings = optimizing.optimise(path, options.optimize)
    if options.precision is not None:
        chosen["precision"] = _lower_precision(path, options.precision, subject, shown)
    version = _read_opset(path)
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


def _read_opset(path: Path) -> int:
    model = onnx.load(path, load_external_data=False)
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            return int(entry.version)
    return 0


def _lower_precision(
    path: Path,
    kind: str,
    subject: Subject,
    shown: Path,
) -> str:
    try:
        inputs = sample_inputs.collect_inputs(subject, path)
        return precision.lower_precision(path, kind, inputs).describe()
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
