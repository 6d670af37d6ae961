"""Which dims vary: what the user asked for, what the capture left open, their names, and why the others are fixed."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from onnxproof.errors import ExportError, UsageError
from onnxproof.exporter.capture import Capture
from onnxproof.exporter.example import Example, Place
from onnxproof.exporter.naming import DimNames
from onnxproof.results import ExportedDim

_PROBE_SHARE = 0.05
"""Share of the time of the capture that is spent on calling the module at other sizes. Not measured."""
_ASKED = "you asked for it"
Limits = tuple[int | None, int | None]


class BakedDim(ExportError):
    """A dim that must vary, and does in the module, was fixed by the capture: another attempt may keep it open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DimRequest:
    """What the user asked for about dims; all other dims are left open if the module can."""

    names: Mapping[Place, str] = field(default_factory=dict)
    auto: frozenset[Place] = frozenset()
    """Those that may vary if they can (`Dim.AUTO`)."""
    static: frozenset[Place] = frozenset()
    limits: Mapping[str, Limits] = field(default_factory=dict)
    """By the dim's name."""
    exclusive: bool = False
    """True if no other dims may vary (there is a `dynamic_shapes`); the named ones must."""

    def check(self, example: Example) -> None:
        """Every dim must exist, and none may be both dynamic and static."""
        for name, axis in [*self.names, *self.static]:
            if name not in example.tensors:
                raise UsageError(
                    "unknown-input",
                    f"there is no input `{name}`",
                    notes=[f"the module takes {', '.join(example.tensors)}"],
                )
            if axis >= example.tensors[name].dim():
                raise UsageError(
                    "unknown-axis",
                    f"`{name}` has no axis {axis}",
                    notes=[f"the example is {list(example.tensors[name].shape)}"],
                )
        both = sorted(set(self.names) & self.static)
        if both:
            name, axis = both[0]
            raise UsageError(
                "both-ways",
                f"axis {axis} of `{name}` is asked to be dynamic and static",
                help="leave one of the two out",
            )

    def open_dims(self, example: Example) -> dict[Place, Limits]:
        """The dims that the capture should leave open, each with the user's limits."""
        places = [place for place in example.places() if place not in self.static]
        if self.exclusive:
            places = [place for place in places if place in self.names or place in self.auto]
        return {place: self.limits.get(self.names.get(place, ""), (None, None)) for place in places}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dims:
    """A row for each dim, and the file's names for torch's symbols."""

    rows: tuple[ExportedDim, ...]
    names: Mapping[Any, str]
    """By symbol."""
    written: Mapping[Any, str] = field(default_factory=dict)
    """The same for the file, with the expressions of symbols that follow from others."""


def resolve_dims(
    capture: Capture,
    example: Example,
    request: DimRequest,
    *,
    subject: str,
    seconds: float,
) -> Dims:
    """Name the open dims, and give the reasons for the others; `seconds` is the time of the capture.

    1. Each symbol that is left gets a name.
    2. Each dim becomes a row: open with its range, or fixed with the reason.
    3. The eager module is called at other sizes of the fixed dims: does it accept them?
    4. Named dims must be open, and limits must belong to a dim.
    """
    names = DimNames(example, request.names, capture.sizes).assign(_free_symbols(capture, example))
    rows = [_row(place, capture, example, request, names) for place in example.places()]
    rows = _probe_fixed_dims(rows, capture, example, request, seconds * _PROBE_SHARE)
    _require_open(rows, request, subject)
    _check_limits(rows, request)
    tied = {symbol: format_expression(value, names) for symbol, value in capture.tied.items()}
    return Dims(rows=tuple(rows), names=names, written={**names, **tied})


def _check_limits(rows: Sequence[ExportedDim], request: DimRequest) -> None:
    used = {name for row in rows for name in row.name.split()}
    unknown = sorted(set(request.limits) - used)
    if unknown:
        open_names = sorted(used - {"+", "-", "*"})
        raise UsageError(
            "unknown-dim",
            f"there is no dim `{unknown[0]}` to give a range to",
            notes=[f"open dims are {', '.join(open_names) or 'none'}"],
            help="the table of dims shows their names; `--dynamic x:1=seq` gives a dim a name of your own",
        )


def _free_symbols(capture: Capture, example: Example) -> dict[Any, list[Place]]:
    """The symbols that are left, each with the dims that are exactly it."""
    places_by_symbol: dict[Any, list[Place]] = {}
    for place in example.places():
        final = capture.final.get(place)
        if final is None or not final.free_symbols:
            continue
        for symbol in sorted(final.free_symbols, key=str):
            places_by_symbol.setdefault(symbol, [])
        if final.is_Symbol:
            places_by_symbol[final].append(place)
    return places_by_symbol


def _row(
    place: Place,
    capture: Capture,
    example: Example,
    request: DimRequest,
    names: Mapping[Any, str],
) -> ExportedDim:
    row = ExportedDim(input=place[0], axis=place[1], size=example.size(place))
    final = capture.final.get(place)
    if final is not None and final.free_symbols:
        return _open_row(row, final, capture, request, names)
    if place in request.static:
        return replace(row, reason=_ASKED)
    if final is not None:
        return _fixed_row(row, place, capture)
    if request.exclusive:
        return replace(row, reason="dynamic_shapes leaves it out")
    if row.size < 2:
        return replace(row, reason="the module takes no other size")
    return replace(row, reason="it was not traced")


def _open_row(
    row: ExportedDim,
    final: Any,
    capture: Capture,
    request: DimRequest,
    names: Mapping[Any, str],
) -> ExportedDim:
    name = format_expression(final, names)
    limits = request.limits.get(name)
    if limits is not None:
        low, high = limits
        return replace(row, name=name, minimum=low or 0, maximum=high, promised=True)
    minimum, maximum = capture.ranges.get(final, (0, None))
    return replace(row, name=name, minimum=minimum, maximum=maximum)


def format_expression(expression: Any, names: Mapping[Any, str]) -> str:
    """An expression of symbols with the names of dims instead of the symbols."""
    text = f" {expression} "
    for symbol in sorted(expression.free_symbols, key=lambda s: -len(str(s))):
        text = text.replace(str(symbol), names.get(symbol, str(symbol)))
    return text.strip()


def _fixed_row(
    row: ExportedDim,
    place: Place,
    capture: Capture,
) -> ExportedDim:
    """The first assumption that fixed the dim: `x[1] == 6`, and its line."""
    symbols = _equal_symbols(place, capture)
    for assumption in capture.assumptions:
        expression = assumption.expression
        if symbols & expression.free_symbols and _fixes_one_symbol(expression):
            labels = place_labels(capture.symbols)
            reason = f"assumed {format_relation(expression, labels)}"
            return replace(row, reason=reason, source=assumption.source)
    return replace(row, reason="torch fixed it and gives no reason")


def place_labels(symbols: Mapping[Any, Place]) -> dict[Any, str]:
    """`x[1]` for each symbol."""
    return {symbol: f"{name}[{axis}]" for symbol, (name, axis) in symbols.items()}


def _equal_symbols(place: Place, capture: Capture) -> set[Any]:
    """The symbols of a dim and all that were assumed equal to them."""
    equal = {symbol for symbol, where in capture.symbols.items() if where == place}
    equalities = [a.expression for a in capture.assumptions if equates_symbols(a.expression)]
    count = -1
    while count != len(equal):
        count = len(equal)
        for expression in equalities:
            if equal & expression.free_symbols:
                equal |= expression.free_symbols
    return equal


def equates_symbols(expression: Any) -> bool:
    """True for an assumption that two dims have the same size."""
    if getattr(expression, "rel_op", "") != "==":
        return False
    return bool(expression.lhs.is_Symbol and expression.rhs.is_Symbol)


def _fixes_one_symbol(expression: Any) -> bool:
    return getattr(expression, "rel_op", "") == "==" and len(expression.free_symbols) == 1


def format_relation(expression: Any, names: Mapping[Any, str]) -> str:
    """`Eq(s27, 6)` as `x[1] == 6`."""
    operator = getattr(expression, "rel_op", None)
    if operator is None:
        return format_expression(expression, names)
    left = format_expression(expression.lhs, names)
    right = format_expression(expression.rhs, names)
    return f"{left} {operator} {right}"


def _require_open(
    rows: Sequence[ExportedDim],
    request: DimRequest,
    subject: str,
) -> None:
    """A dim that the user calls dynamic and the module fixes is an error, with the line that fixes it."""
    for row in rows:
        if (row.input, row.axis) not in request.names or row.name:
            continue
        error = ExportError
        reason = f"{row.reason}; the module itself takes no other size"
        if row.baked:
            error = BakedDim
            reason = f"{row.reason}; the module itself takes other sizes"
        where = ""
        notes = [reason]
        if row.source:
            where = f"{row.source.file}:{row.source.line}"
            notes.append(f"`{row.source.text}`")
        raise error(
            "export-failed",
            f"torch can't export `{subject}`: dim {row.axis} of `{row.input}` should vary, and the module fixes it at {row.size}",
            where=where,
            notes=notes,
            help="rewrite that line so that it holds for every size, or leave the dim out of dynamic_shapes",
        )


def _probe_fixed_dims(
    rows: Sequence[ExportedDim],
    capture: Capture,
    example: Example,
    request: DimRequest,
    seconds: float,
) -> list[ExportedDim]:
    """Call the eager module at other sizes of the fixed dims: where it accepts them, the capture baked the dim.

    The first probe and those of dims that the user named are always made, the others while the time lasts.
    """
    deadline = time.monotonic() + seconds
    accepted: dict[frozenset[Place], bool] = {}
    result = []
    for row in rows:
        place = (row.input, row.axis)
        if row.name or place not in capture.final or row.reason == _ASKED:
            result.append(row)
            continue
        together = frozenset(capture.symbols[s] for s in _equal_symbols(place, capture))
        required = not accepted or place in request.names
        if together not in accepted and (required or time.monotonic() < deadline):
            accepted[together] = example.accepts({p: example.size(p) + 1 for p in together})
        result.append(replace(row, baked=accepted.get(together, False)))
    return result
