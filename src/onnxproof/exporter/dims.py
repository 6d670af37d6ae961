"""Which dims vary: what the user said, what the capture left open, how they are called, and why the others are fixed."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from onnxproof.errors import ExportError, UsageError
from onnxproof.exporter.capture import Captured
from onnxproof.exporter.example import Example, Place
from onnxproof.exporter.naming import Names
from onnxproof.results import ExportedDim

_PROBE_SHARE = 0.05
"""Of the time that capturing took: the most that is spent on asking the module whether it takes another size."""
Limits = tuple[int | None, int | None]


class BakedDim(ExportError):
    """A dim that must vary, and does in the module, was fixed by the capture: another way may keep it open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user said about dims; all other dims are found out."""

    names: Mapping[Place, str] = field(default_factory=dict)
    auto: frozenset[Place] = frozenset()
    """Those that may vary if they can (`Dim.AUTO`)."""
    static: frozenset[Place] = frozenset()
    limits: Mapping[str, Limits] = field(default_factory=dict)
    """By the dim's name."""
    only: bool = False
    """True when the dims named are all that may vary (`dynamic_shapes` was given): they must, then."""

    def check(self, example: Example) -> None:
        """Every place must exist, and every limit must be one of a dim that has a name."""
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
        if both := sorted(set(self.names) & self.static):
            raise UsageError(
                "both-ways",
                f"axis {both[0][1]} of `{both[0][0]}` is asked to be dynamic and static",
                help="leave one of the two out",
            )

    def opened(self, example: Example) -> dict[Place, Limits]:
        """The dims that the capture should leave open, each with the limits the user gave."""
        places = [
            place
            for place in example.places()
            if place not in self.static
            and (not self.only or place in self.names or place in self.auto)
        ]
        return {place: self.limits.get(self.names.get(place, ""), (None, None)) for place in places}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dims:
    """The outcome: a row for each dim, and the file's names for torch's symbols."""

    rows: tuple[ExportedDim, ...]
    names: Mapping[Any, str]
    """By symbol."""
    written: Mapping[Any, str] = field(default_factory=dict)
    """The same for the file, with symbols that follow from others."""


def settle(
    captured: Captured, example: Example, wishes: Wishes, *, subject: str, seconds: float
) -> Dims:
    """Name what is open, give the reason for what is not; `seconds` is what capturing took."""
    roots = _roots(captured, example)
    named = Names(example, wishes.names, captured.sizes).of(roots)
    rows = [_row(place, captured, example, wishes, named) for place in example.places()]
    rows = _probe(rows, captured, example, wishes, seconds * _PROBE_SHARE)
    _insist(rows, wishes, subject)
    used = {name for row in rows if row.name for name in row.name.split()}
    if unknown := sorted(set(wishes.limits) - used):
        raise UsageError(
            "unknown-dim",
            f"there is no dim `{unknown[0]}` to give a range to",
            notes=[f"open dims are {', '.join(sorted(used - {'+', '-', '*'})) or 'none'}"],
            help="the table of dims shows their names; `--dynamic x:1=seq` gives a dim a name of your own",
        )
    return Dims(
        rows=tuple(rows),
        names=named,
        written={
            **named,
            **{symbol: in_words(value, named) for symbol, value in captured.tied.items()},
        },
    )


def _roots(captured: Captured, example: Example) -> dict[Any, list[Place]]:
    """The symbols that are left, each with the dims that are exactly it."""
    roots: dict[Any, list[Place]] = {}
    for place in example.places():
        final = captured.final.get(place)
        if final is None or not final.free_symbols:
            continue
        for symbol in sorted(final.free_symbols, key=str):
            roots.setdefault(symbol, [])
        if final.is_Symbol:
            roots[final].append(place)
    return roots


def _row(
    place: Place, captured: Captured, example: Example, wishes: Wishes, names: Mapping[Any, str]
) -> ExportedDim:
    row = ExportedDim(input=place[0], axis=place[1], size=example.size(place))
    final = captured.final.get(place)
    if final is not None and final.free_symbols:
        return _open(row, final, captured, wishes, names)
    if place in wishes.static:
        return replace(row, reason="you asked for it")
    if final is None and wishes.only:
        return replace(row, reason="dynamic_shapes leaves it out")
    if final is None:
        return replace(
            row, reason="the module takes no other size" if row.size < 2 else "it was not traced"
        )
    return _fixed(row, place, captured)


def _open(
    row: ExportedDim, final: Any, captured: Captured, wishes: Wishes, names: Mapping[Any, str]
) -> ExportedDim:
    name = in_words(final, names)
    low, high = captured.ranges.get(final, (0, None))
    asked = wishes.limits.get(name)
    if asked is not None:
        return replace(row, name=name, minimum=asked[0] or 0, maximum=asked[1], promised=True)
    return replace(row, name=name, minimum=low, maximum=high)


def in_words(expression: Any, names: Mapping[Any, str]) -> str:
    """An expression of symbols in terms of the dims' names."""
    text = f" {expression} "
    for symbol in sorted(expression.free_symbols, key=lambda s: -len(str(s))):
        text = text.replace(str(symbol), names.get(symbol, str(symbol)))
    return text.strip()


def _fixed(row: ExportedDim, place: Place, captured: Captured) -> ExportedDim:
    """The first assumption that fixed it: `x[1] == 6`, and its line."""
    mine = {symbol for symbol, where in captured.symbols.items() if where == place}
    class_ = _together(mine, captured)
    for assumption in captured.assumptions:
        expression = assumption.expression
        if class_ & expression.free_symbols and _pins(expression):
            labels = {
                symbol: f"{where[0]}[{where[1]}]" for symbol, where in captured.symbols.items()
            }
            return replace(
                row, reason=f"assumed {relation(expression, labels)}", source=assumption.source
            )
    return replace(row, reason="torch fixed it and gives no reason")


def _together(symbols: set[Any], captured: Captured) -> set[Any]:
    """These symbols and all that were assumed equal to them."""
    found = set(symbols)
    for _ in captured.assumptions:
        size = len(found)
        for assumption in captured.assumptions:
            expression = assumption.expression
            if (
                getattr(expression, "rel_op", "") == "=="
                and expression.lhs.is_Symbol
                and expression.rhs.is_Symbol
                and found & expression.free_symbols
            ):
                found |= expression.free_symbols
        if len(found) == size:
            break
    return found


def _pins(expression: Any) -> bool:
    return getattr(expression, "rel_op", "") == "==" and len(expression.free_symbols) == 1


def relation(expression: Any, names: Mapping[Any, str]) -> str:
    """`Eq(s27, 6)` as `x[1] == 6`."""
    operator = getattr(expression, "rel_op", None)
    if operator is None:
        return in_words(expression, names)
    return f"{in_words(expression.lhs, names)} {operator} {in_words(expression.rhs, names)}"


def _insist(rows: Sequence[ExportedDim], wishes: Wishes, subject: str) -> None:
    """A dim that the user calls dynamic and the module fixes is an error, with the line that fixes it."""
    for row in rows:
        if (row.input, row.axis) in wishes.names and not row.name:
            place = f"{row.source.file}:{row.source.line}" if row.source else ""
            kind = BakedDim if row.baked else ExportError
            whose = (
                "the module itself takes other sizes"
                if row.baked
                else "the module itself takes no other size"
            )
            raise kind(
                "export-failed",
                f"torch can't export `{subject}`: dim {row.axis} of `{row.input}` should vary, and the module fixes it at {row.size}",
                where=place,
                notes=[f"{row.reason}; {whose}", *([f"`{row.source.text}`"] if row.source else [])],
                help="rewrite that line so that it holds for every size, or leave the dim out of dynamic_shapes",
            )


def _probe(
    rows: Sequence[ExportedDim],
    captured: Captured,
    example: Example,
    wishes: Wishes,
    seconds: float,
) -> list[ExportedDim]:
    """Ask the eager module whether it takes other sizes where the export takes none: then the export crippled it."""
    until, asked, answers = time.monotonic() + seconds, 0, {}
    result = []
    for row in rows:
        place = (row.input, row.axis)
        if row.name or place not in captured.final or row.reason == "you asked for it":
            result.append(row)
            continue
        mine = {symbol for symbol, where in captured.symbols.items() if where == place}
        key = frozenset(captured.symbols[symbol] for symbol in _together(mine, captured))
        if key not in answers and (asked == 0 or place in wishes.names or time.monotonic() < until):
            asked += 1
            answers[key] = example.accepts({where: example.size(where) + 1 for where in key})
        result.append(replace(row, baked=answers.get(key, False)))
    return result
