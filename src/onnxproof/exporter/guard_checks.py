"""Check each guard at its boundary: the last size that it covers, and the first that it does not, on the file and on the module."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import BackendError
from onnxproof.exporter.capture import Capture
from onnxproof.exporter.example import Example, Place
from onnxproof.exporter.guards import CheckableGuard, format_source, holds
from onnxproof.numerics.measure import pair
from onnxproof.options import Policy
from onnxproof.reference.torch_session import to_numpy
from onnxproof.results import ExportedDim, Finding, Guard, judging
from onnxproof.runtimes import Session, open_session

Array = np.ndarray[Any, Any]
SymbolSizes = Mapping[Any, int]
_MAX_DISTANCE = 600
"""From the example's size, within which a boundary is searched. Not measured."""
_MAX_GUARDS = 12
"""Guards that are checked, each with two runs of the file and the module. Not measured."""
_AGREES = "it answers as the module does"
_REFUSES = "the file refuses"


def check_guards(
    guards: Sequence[CheckableGuard],
    capture: Capture,
    example: Example,
    rows: Sequence[ExportedDim],
    path: Path,
    backend: str = "ort",
) -> tuple[list[Guard], list[Finding]]:
    """Each guard with the outcome of its check, and a finding for each size that the file accepts and the guard does not cover."""
    if not guards:
        return [], []
    session = open_session(backend, path)
    checker = _Checker(capture=capture, example=example, session=session, rows=rows)
    try:
        outcomes = [checker.check(guard) for guard in guards[:_MAX_GUARDS]]
    finally:
        session.close()
    checked = [
        replace(guard.guard, tested=tested)
        for guard, (tested, _) in zip(guards, outcomes, strict=False)
    ]
    unchecked = [
        replace(guard.guard, tested="not tried: there are too many")
        for guard in guards[_MAX_GUARDS:]
    ]
    findings = [finding for _, finding in outcomes if finding is not None]
    return [*checked, *unchecked], findings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checker:
    """Runs the file and the module at the boundaries of guards."""

    capture: Capture
    example: Example
    session: Session
    rows: Sequence[ExportedDim]

    def check(self, guard: CheckableGuard) -> tuple[str, Finding | None]:
        """The outcome in words, and a finding if the file accepts a size that the guard does not cover."""
        boundary = _find_boundary(guard, self.capture)
        if boundary is None:
            return "no size outside was found", None
        inside, outside = boundary
        for row in self.rows:
            if row.promised and not _within_range(row, outside, guard):
                return f"no size outside is tried: your range for {row.name} leaves them out", None
        inside_outcome = self._run(inside)
        outcome = self._run(outside)
        inside_words = f"inside ({self._format(inside, guard)}): {inside_outcome}"
        outside_words = f"outside ({self._format(outside, guard)}): {outcome}"
        tested = f"{inside_words}; {outside_words}"
        if outcome.startswith(_REFUSES) or outcome == _AGREES:  # right there, or no answer at all
            return tested, None
        finding = Finding(
            code="guard",
            what=f"the file accepts {self._format(outside, guard)}, but was traced for {guard.guard.text}{format_source(guard.guard.source)}; {outcome}",
            help="keep to sizes that the assumption covers (`--dim` limits them), or rewrite that line without a branch on the size",
        )
        return tested, finding

    def _run(self, symbol_sizes: SymbolSizes) -> str:
        """The file and the module at these sizes: the outcome in words."""
        sizes: dict[Place, int] = {}
        for place, final in self.capture.final.items():
            size = int(final.subs(dict(symbol_sizes)))
            if size < 1:
                return f"{_REFUSES} nothing there: the size would be empty"
            if size != self.example.size(place):
                sizes[place] = size
        inputs = self.example.resized(sizes)
        try:
            candidate = self.session.run(self._by_file_names(inputs))
        except BackendError:
            return f"{_REFUSES} it"
        try:
            reference = [to_numpy(tensor) for _, tensor in self.example.session.call(inputs)]
        except Exception:  # the user's own module
            return "the module refuses it"
        if _agree(reference, candidate):
            return _AGREES
        return "its answer is not the module's"

    def _by_file_names(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """The inputs under the file's names, in which a dot may be an underscore."""
        arrays = {name.replace(".", "_"): to_numpy(tensor) for name, tensor in inputs.items()}
        keys = {name: name.replace(".", "_") for name in self.session.input_names}
        return {name: arrays[key] for name, key in keys.items() if key in arrays}

    def _format(
        self,
        sizes: SymbolSizes,
        guard: CheckableGuard,
    ) -> str:
        """The sizes that differ from the example's, by name; all sizes of the guard if none does."""
        changed = [s for s in guard.names if sizes[s] != self.capture.hints[s]]
        return ", ".join(f"{guard.names[s]} {sizes[s]}" for s in changed or guard.names)


def _find_boundary(
    guard: CheckableGuard,
    capture: Capture,
) -> tuple[dict[Any, int], dict[Any, int]] | None:
    """Sizes of every symbol for the last covered and the first uncovered size, as near to the example's as there are."""
    hints = {symbol: capture.hints[symbol] for symbol in _free_symbols(capture)}
    guard_hints = {symbol: hints[symbol] for symbol in guard.names}
    for symbol, hint in guard_hints.items():
        for size in _sizes_around(hint):
            if holds(guard.expression, {**guard_hints, symbol: size}):
                continue
            nearer = size - 1 if size > hint else size + 1
            inside = dict.fromkeys(guard.peers[symbol], nearer)
            outside = dict.fromkeys(guard.peers[symbol], size)
            return {**hints, **inside}, {**hints, **outside}
    return None


def _within_range(
    row: ExportedDim,
    sizes: SymbolSizes,
    guard: CheckableGuard,
) -> bool:
    """Whether the size for that dim is one that the user promised."""
    own_sizes = [sizes[symbol] for symbol, name in guard.names.items() if name == row.name]
    if any(size < row.minimum for size in own_sizes):
        return False
    return row.maximum is None or all(size <= row.maximum for size in own_sizes)


def _sizes_around(start: int) -> Iterator[int]:
    """Sizes around the start: one up, one down, two up, ...; not 0, since empty tensors are checked elsewhere."""
    for step in range(1, _MAX_DISTANCE):
        yield start + step
        if start - step > 0:
            yield start - step


def _free_symbols(capture: Capture) -> set[Any]:
    return {symbol for final in capture.final.values() for symbol in final.free_symbols}


def _agree(reference: Sequence[Array], candidate: Sequence[Array | None]) -> bool:
    """Within the classical tolerance: a size that tracing did not cover changes the first digits."""
    if len(reference) != len(candidate):
        return False
    pairs = zip(reference, candidate, strict=True)
    return all(judging.agrees(pair(want, got), Policy()) for want, got in pairs)
