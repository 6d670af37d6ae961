"""A quantized model for machines: what was tried and measured, with the proof in its own form."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxproof.files import write_text
from onnxproof.report import json_writer

if TYPE_CHECKING:
    from onnxproof.quantizing.result import Quantized

SCHEMA = "quantized-1"


def to_dict(result: "Quantized") -> dict[str, Any]:
    """Plain dicts, lists, strings and numbers."""
    plain = {f.name: json_writer._plain(getattr(result, f.name)) for f in fields(result) if f.name not in ("proof", "path")}
    return {"schema": SCHEMA, "path": str(result.path), "verdict": result.verdict.value, **plain, "proof": json_writer.to_dict(result.proof)}


def dumps(result: "Quantized") -> str:
    """The text: one line for each item of a list."""
    return json_writer._layout(to_dict(result))


def write(result: "Quantized", path: str | Path) -> None:
    """Write it; the file appears whole or not at all."""
    write_text(dumps(result), path)
