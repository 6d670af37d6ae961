"""The history of a suite in words, and as JSON.

`python -m onnxproof.suite.history_words > docs/history.schema.json` writes the schema.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from onnxproof.report.plain import plural, ratio, short
from onnxproof.report.schema import document_of
from onnxproof.report.writers.json import layout, to_plain
from onnxproof.suite.history import VERDICT, Difference, History, Move, Reason
from onnxproof.suite.records import Result, Run
from onnxproof.suite.series import Recorded

SCHEMA = "history-1"
_NAMES = {"noise_ratio": "noise ratio", "quality": "quality", "latency_ms": "latency"}
_HASH = 12
"""Characters of a hash that are shown."""


def dumps(history: History) -> str:
    """The text of the JSON: runs, moves, and what two runs differ in where that was asked for."""
    return layout({"schema": SCHEMA, **to_plain(history)})


def schema() -> dict[str, Any]:
    """The published schema."""
    return document_of(History, "onnxproof history", SCHEMA)


def lines(history: History, model: str | None = None) -> Iterator[str]:
    """What people read: what moved, the newest first."""
    runs, moves = history.runs, history.moves
    if model is not None:
        moves = tuple(move for move in moves if move.model == model)
    first, last = runs[0], runs[-1]
    counts = f"{plural(len(runs), 'run')} of {plural(len(history.models), 'model')}"
    when = f"{first.id} ({_date(first)}) to {last.id} ({_date(last)})"
    yield f"{short(history.suite)}: {counts}, {when}"
    if len(runs) == 1:
        yield "this is the first run: from the second on, what moved is named here"
    elif not moves:
        yield "nothing moved beyond the jitter of its earlier runs"
    by_run = {run.id: run for run in runs}
    for move in reversed(moves):
        yield ""
        yield from _move_lines(move, by_run[move.run])
    for name in history.unsteady:
        if model in (None, name):
            yield f"unsteady: {short(name)}: its verdict comes and goes while nothing is recorded to change"


def _move_lines(move: Move, run: Run) -> Iterator[str]:
    where = f" on {move.backend}" if move.backend else ""
    ends = f", back in run {move.until}" if move.until is not None else ""
    better = "" if move.worse else " (better)"
    change = f"{_value(move.metric, move.before)} -> {_value(move.metric, move.after)}"
    yield f"{short(move.model)}: {_NAMES.get(move.metric, VERDICT)} {change}{where} since run {move.run} ({_date(run)}){ends}{better}"
    for reason in move.reasons:
        yield f"  = note: with it {reason_words(reason)}"
    if not move.reasons:
        yield "  = note: nothing that is recorded changed with it"


def reason_words(reason: Reason) -> str:
    """What changed: `onnxruntime 1.30.0 -> 1.31.0`, `the file net.onnx changed`."""
    if reason.kind == "key":
        return "its file, code, data or options changed"
    if reason.kind == "file":
        return f"the file {short(reason.name)} changed"
    before, after = (short(value[:_HASH]) or "none" for value in (reason.before, reason.after))
    return f"{short(reason.name)} {before} -> {after}"


def model_lines(recorded: Recorded, name: str) -> Iterator[str]:
    """Every run of one model, the oldest first."""
    yield f"{'run':>5}  {'date':<10}  {'verdict':<9} {'x noise':>10}  commit"
    for run, result in recorded.of_model(name):
        again = f"  (taken over from run {result.reused_from})" if result.reused_from else ""
        yield f"{run.id:>5}  {_date(run):<10}  {result.verdict:<9} {_ratio(result):>10}  {short((run.commit_id or '')[:_HASH])}{again}"


def compared_lines(differences: Sequence[Difference], first: int, second: int) -> Iterator[str]:
    """Two runs beside each other: models with another verdict, and those whose noise ratio moved."""
    moved = [each for each in differences if each.moved]
    yield f"run {first} and run {second}: {len(moved)} of {len(differences)} models with another verdict"
    for each in differences:
        sides = [_side(result) for result in (each.first, each.second)]
        if sides[0] == sides[1]:
            continue
        yield f"  {short(each.model)}: {sides[0]} -> {sides[1]}"
        yield from (f"    = note: {reason_words(reason)}" for reason in each.reasons)


def _side(result: Result | None) -> str:
    if result is None:
        return "not there"
    return f"{result.verdict} {_ratio(result)}".strip()


def _ratio(result: Result) -> str:
    return "" if result.noise_ratio is None else ratio(result.noise_ratio)


def _value(metric: str, value: str | float) -> str:
    if isinstance(value, str):
        return value
    units = {"quality": " dB", "latency_ms": " ms"}
    return f"{ratio(value)}{units.get(metric, '')}"


def _date(run: Run) -> str:
    return run.started[:10]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
