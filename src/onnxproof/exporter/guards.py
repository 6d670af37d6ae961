"""What torch assumed about sizes, with the names of dims, written into the file and read back from it."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxproof.exporter.capture import Capture
from onnxproof.exporter.dims import Dims, format_relation
from onnxproof.results import ExportedDim, Guard, Source

GUARDS, DIMS = "onnxproof.guards", "onnxproof.dims"
"""Keys of the ONNX metadata."""
_MAX_SYMBOLS = 3
"""Symbols of an assumption that is evaluated at all combinations of a few sizes: six sizes make 216."""
_SIZES = (*range(1, 130), 1 << 10, 1 << 20)
"""At which an assumption about one dim is evaluated. Not measured."""
_FEW_SIZES = (1, 2, 3, 5, 16, 100)
"""The same for each of several dims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckableGuard:
    """A guard that can be evaluated: its expression over the symbols that are left, and their names."""

    guard: Guard
    expression: Any
    names: Mapping[Any, str]
    """Its symbols, by the names of their dims."""
    peers: Mapping[Any, Sequence[Any]]
    """For each of its symbols all that share its name: they have the same size."""


def collect_guards(capture: Capture, dims: Dims) -> list[CheckableGuard]:
    """The assumptions that restrict open dims: not those that only fixed a dim or made two dims equal."""
    guards: dict[str, CheckableGuard] = {}
    for assumption in capture.assumptions:
        expression = _with_final_sizes(assumption.expression, capture)
        symbols: set[Any] = getattr(expression, "free_symbols", set())
        if not symbols or not symbols <= set(dims.names) or _always_holds(expression):
            continue
        text = format_relation(expression, dims.names)
        if text in guards:
            continue
        names = {symbol: dims.names[symbol] for symbol in sorted(symbols, key=str)}
        guards[text] = CheckableGuard(
            guard=Guard(text=text, dims=tuple(names.values()), source=assumption.source),
            expression=expression,
            names=names,
            peers={symbol: _symbols_named(name, dims) for symbol, name in names.items()},
        )
    return list(guards.values())


def _symbols_named(name: str, dims: Dims) -> list[Any]:
    return [symbol for symbol, other in dims.names.items() if other == name]


def _with_final_sizes(expression: Any, capture: Capture) -> Any:
    """The expression in terms of the symbols that are left."""
    final = {symbol: capture.final[place] for symbol, place in capture.symbols.items()}
    changed = {symbol: value for symbol, value in final.items() if value != symbol}
    return expression.xreplace(changed)


def _always_holds(expression: Any) -> bool:
    """True if it holds at all sizes of a sample: then it restricts nothing. All sizes 1 at once are left out, torch treats them on their own."""
    symbols = list(expression.free_symbols)
    if len(symbols) > _MAX_SYMBOLS:
        return False
    if len(symbols) == 1:
        return all(holds(expression, {symbols[0]: size}) for size in _SIZES)
    for sizes in itertools.product(_FEW_SIZES, repeat=len(symbols)):
        if max(sizes) > 1 and not holds(expression, dict(zip(symbols, sizes, strict=True))):
            return False
    return True


def holds(expression: Any, sizes: Mapping[Any, int]) -> bool:
    """Whether the assumption covers these sizes; where it is not even defined (a remainder of a division by zero), it does not."""
    try:
        return bool(expression.subs(dict(sizes)))
    except (ZeroDivisionError, TypeError):
        return False


def format_source(source: Source | None) -> str:
    """The file and line of an assumption in words; empty if they are not known."""
    if source is None:
        return ""
    return f" at {source.file.rpartition('/')[2]}:{source.line}: `{source.text}`"


def to_metadata(rows: Sequence[ExportedDim], guards: Sequence[Guard]) -> dict[str, str]:
    """The entries for the file: small JSON that any tool can read."""
    dims = [
        {
            "input": row.input,
            "axis": row.axis,
            "name": row.name,
            "minimum": row.minimum,
            "maximum": row.maximum,
            "promised": row.promised,
        }
        for row in rows
        if row.name
    ]
    entries = [
        {"text": guard.text, "dims": list(guard.dims), "source": _source_entry(guard.source)}
        for guard in guards
    ]
    return {DIMS: json.dumps(dims), GUARDS: json.dumps(entries)}


def from_metadata(metadata: Mapping[str, str]) -> list[Guard]:
    """The guards of a file that onnxproof exported; none for other files."""
    entries = json.loads(metadata.get(GUARDS) or "[]")
    return [
        Guard(text=entry["text"], dims=tuple(entry["dims"]), source=_read_source(entry["source"]))
        for entry in entries
    ]


def _source_entry(source: Source | None) -> list[Any] | None:
    if source is None:
        return None
    return [source.file.rpartition("/")[2], source.line, source.text]


def _read_source(entry: list[Any] | None) -> Source | None:
    if entry is None:
        return None
    file, line, text = entry
    return Source(file=file, line=line, text=text)
