"""Try each assumption on both sides: the last size it covers, and the first it does not, on the file and on the module."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import BackendError
from onnxproof.exporter.capture import Captured
from onnxproof.exporter.example import Example, Place
from onnxproof.exporter.guards import Assumed, holds
from onnxproof.numerics.measure import pair
from onnxproof.options import Policy
from onnxproof.reference.torch_session import to_numpy
from onnxproof.results import ExportedDim, Finding, Guard, judging
from onnxproof.runtimes import Session, open_session

Array = np.ndarray[Any, Any]
_FARTHEST = 600
"""How far from the example's size a boundary is looked for."""
_AGREES = "it answers as the module does"
_MOST = 12
"""Assumptions that are tried; a model with more is told so."""


def try_both(
    assumed: Sequence[Assumed],
    captured: Captured,
    example: Example,
    rows: Sequence[ExportedDim],
    path: Path,
    backend: str = "ort",
) -> tuple[list[Guard], list[Finding]]:
    """Each guard with what became of it, and a finding for each size that the file accepts and the assumption does not cover."""
    if not assumed:
        return [], []
    session = open_session(backend, path)
    try:
        guards, findings = [], []
        for item in assumed[:_MOST]:
            tested, finding = _one(item, captured, example, session, rows)
            guards.append(replace(item.guard, tested=tested))
            findings += [finding] if finding else []
        return [
            *guards,
            *(
                replace(item.guard, tested="not tried: there are too many")
                for item in assumed[_MOST:]
            ),
        ], findings
    finally:
        session.close()


def _one(
    item: Assumed,
    captured: Captured,
    example: Example,
    session: Session,
    rows: Sequence[ExportedDim],
) -> tuple[str, Finding | None]:
    sides = _boundary(item, captured)
    if sides is None:
        return "no size outside was found", None
    inside, outside = sides
    if beyond := next(
        (row.name for row in rows if row.promised and not _within(row, outside, item)), ""
    ):
        return f"no size outside is tried: your range for {beyond} leaves them out", None
    told = [
        f"inside ({_words(inside, item, captured)}): {_try(inside, captured, example, session)}"
    ]
    outcome = _try(outside, captured, example, session)
    told.append(f"outside ({_words(outside, item, captured)}): {outcome}")
    if outcome.startswith("the file refuses") or (
        outcome == _AGREES and getattr(item.expression, "rel_op", "") == "!="
    ):
        return "; ".join(
            told
        ), None  # a single size that was left out, and agrees, is covered after all
    where = (
        f" at {item.guard.source.file.rpartition('/')[2]}:{item.guard.source.line}: `{item.guard.source.text}`"
        if item.guard.source
        else ""
    )
    finding = Finding(
        code="guard",
        what=f"the file accepts {_words(outside, item, captured)}, but was traced for {item.guard.text}{where}; {outcome}",
        help="keep to sizes that the assumption covers (`--dim` limits them), or rewrite that line without a branch on the size",
    )
    return "; ".join(told), finding


def _boundary(item: Assumed, captured: Captured) -> tuple[dict[Any, int], dict[Any, int]] | None:
    """Sizes of every symbol for the last covered and the first uncovered size, as near to the example's as there are."""
    base = {symbol: captured.hints[symbol] for symbol in _symbols(captured)}
    for symbol in item.names:
        for size in _outwards(base[symbol]):
            if not holds(item.expression, {**{s: base[s] for s in item.names}, symbol: size}):
                nearer = size - 1 if size > base[symbol] else size + 1
                return {**base, **dict.fromkeys(item.peers[symbol], nearer)}, {
                    **base,
                    **dict.fromkeys(item.peers[symbol], size),
                }
    return None


def _within(row: ExportedDim, sizes: Mapping[Any, int], item: Assumed) -> bool:
    """Whether the size tried for that dim is one the user promised."""
    mine = [sizes[symbol] for symbol, name in item.names.items() if name == row.name]
    return all(
        row.minimum <= size and (row.maximum is None or size <= row.maximum) for size in mine
    )


def _outwards(start: int) -> Iterator[int]:
    """Sizes around the start: one up, one down, two up, ...; 0 is another story (empty tensors)."""
    for step in range(1, _FARTHEST):
        yield start + step
        if start - step > 0:
            yield start - step


def _symbols(captured: Captured) -> set[Any]:
    return {symbol for final in captured.final.values() for symbol in final.free_symbols}


def _try(values: Mapping[Any, int], captured: Captured, example: Example, session: Session) -> str:
    sizes: dict[Place, int] = {}
    for place, final in captured.final.items():
        size = int(final.subs(dict(values)))
        if size < 1:
            return "the file refuses nothing there: the size would be empty"
        sizes[place] = size
    inputs = example.resized(
        {place: size for place, size in sizes.items() if size != example.size(place)}
    )
    arrays = {name.replace(".", "_"): to_numpy(tensor) for name, tensor in inputs.items()}
    try:
        found = session.run(
            {
                name: arrays[name.replace(".", "_")]
                for name in session.input_names
                if name.replace(".", "_") in arrays
            }
        )
    except BackendError:
        return "the file refuses it"
    try:
        wanted = [to_numpy(tensor) for _, tensor in example.session.call(inputs)]
    except Exception:  # the user's own module
        return "the module refuses it"
    return _AGREES if _close(wanted, found) else "its answer is not the module's"


def _close(wanted: Sequence[Array], found: Sequence[Array | None]) -> bool:
    """Within the classical tolerance: a size that tracing did not foresee shows in the first digits."""
    return len(wanted) == len(found) and all(
        judging.agrees(pair(want, got), Policy()) for want, got in zip(wanted, found, strict=True)
    )


def _words(values: Mapping[Any, int], item: Assumed, captured: Captured) -> str:
    changed = [symbol for symbol in item.names if values[symbol] != captured.hints[symbol]] or list(
        item.names
    )
    return ", ".join(f"{item.names[symbol]} {values[symbol]}" for symbol in changed)
