"""A quantized model for machines: what was tried and measured, with the proof in its own form."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxproof.report.writers import json
from onnxproof.system.writing import write_text

if TYPE_CHECKING:
    from onnxproof.quantization.result import Quantized

SCHEMA = "quantized-1"


def to_dict(result: "Quantized") -> dict[str, Any]:
    """Plain dicts, lists, strings and numbers."""
    plain = {
        f.name: json.to_plain(getattr(result, f.name))
        for f in fields(result)
        if f.name not in ("proof", "path")
    }
    return {
        "schema": SCHEMA,
        "path": str(result.path),
        "verdict": result.verdict.value,
        **plain,
        "proof": json.to_dict(result.proof),
    }


def dumps(result: "Quantized") -> str:
    """The text: one line for each item of a list."""
    return json.layout(to_dict(result))


def write(result: "Quantized", path: str | Path) -> None:
    """Write it; the file appears whole or not at all."""
    write_text(dumps(result), path)
