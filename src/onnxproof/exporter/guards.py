"""What torch assumed about sizes, in the user's terms, written into the file and read back from it."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxproof.exporter.capture import Captured
from onnxproof.exporter.dims import Dims, relation
from onnxproof.results import ExportedDim, Guard, Source

GUARDS, DIMS = "onnxproof.guards", "onnxproof.dims"
"""Keys of the ONNX metadata."""
_MANY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """A guard that can be evaluated: its expression over the symbols that are left, and their names."""

    guard: Guard
    expression: Any
    names: Mapping[Any, str]
    """Its symbols, by the names of their dims."""
    peers: Mapping[Any, Sequence[Any]]
    """All symbols that share the name of one of them: they move together."""


def collect(captured: Captured, dims: Dims) -> list[Assumed]:
    """The assumptions that still say something: not those that only fixed a dim or gave two dims one name."""
    found: list[Assumed] = []
    seen: set[str] = set()
    for assumption in captured.assumptions:
        expression = _reduced(assumption.expression, captured)
        symbols: set[Any] = getattr(expression, "free_symbols", set())
        if not symbols or not symbols <= set(dims.names) or _always(expression):
            continue
        text = relation(expression, dims.names)
        if text in seen:
            continue
        seen.add(text)
        names = {symbol: dims.names[symbol] for symbol in sorted(symbols, key=str)}
        found.append(
            Assumed(
                guard=Guard(text=text, dims=tuple(names.values()), source=assumption.source),
                expression=expression,
                names=names,
                peers={
                    symbol: [other for other, name in dims.names.items() if name == names[symbol]]
                    for symbol in names
                },
            )
        )
    return found


def _reduced(expression: Any, captured: Captured) -> Any:
    """The same in terms of the symbols that are left."""
    final = {symbol: captured.final[place] for symbol, place in captured.symbols.items()}
    return expression.xreplace(
        {symbol: value for symbol, value in final.items() if value != symbol}
    )


def _always(expression: Any) -> bool:
    """True when it holds for all sizes, as far as a sample tells (all ones apart, which torch treats on their own): it says nothing then."""
    symbols = list(expression.free_symbols)
    if len(symbols) > _MANY:
        return False
    sizes = (*range(1, 130), 1 << 10, 1 << 20) if len(symbols) == 1 else (1, 2, 3, 5, 16, 100)
    combinations = (
        choice
        for choice in itertools.product(sizes, repeat=len(symbols))
        if len(symbols) == 1 or max(choice) > 1
    )
    return all(
        holds(expression, dict(zip(symbols, choice, strict=True))) for choice in combinations
    )


def holds(expression: Any, sizes: Mapping[Any, int]) -> bool:
    """Whether the assumption covers these sizes; where it is not even defined (a remainder of a division by zero), it does not."""
    try:
        return bool(expression.subs(dict(sizes)))
    except (ZeroDivisionError, TypeError):
        return False


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
    told = [
        {"text": guard.text, "dims": list(guard.dims), "source": _place(guard.source)}
        for guard in guards
    ]
    return {DIMS: json.dumps(dims), GUARDS: json.dumps(told)}


def from_metadata(metadata: Mapping[str, str]) -> list[Guard]:
    """The guards of a file that onnxproof exported; none for other files."""
    told = json.loads(metadata.get(GUARDS) or "[]")
    return [
        Guard(text=entry["text"], dims=tuple(entry["dims"]), source=_source(entry["source"]))
        for entry in told
    ]


def _place(source: Source | None) -> list[Any] | None:
    return None if source is None else [source.file.rpartition("/")[2], source.line, source.text]


def _source(place: list[Any] | None) -> Source | None:
    return None if place is None else Source(file=place[0], line=place[1], text=place[2])
