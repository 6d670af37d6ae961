"""A suite and its history as one HTML file that opens offline: a table of models, what moved, and the report of each.

The page's data is one JSON; its script makes the rows that are seen, so that thousands of them cost nothing. The reports of models are the
pages of `report/writers/html`, compressed, without the scripts and styles that all share: they are put together in the browser when one is opened.
"""

import base64
import gzip
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

from onnxproof.errors import UsageError
from onnxproof.report.page_data import MOST
from onnxproof.report.plain import block, short
from onnxproof.report.writers import html
from onnxproof.report.writers import json as proofs
from onnxproof.suite import change_points, gate, history, series
from onnxproof.suite.history_words import reason_words
from onnxproof.suite.records import Measure, Result, Run
from onnxproof.suite.series import METRICS, Recorded
from onnxproof.suite.store import Store
from onnxproof.system.writing import write_text

_MOST_ERROR = 4000
"""Characters of an error, with the last words of the model."""
_MOST_RUNS = 200
"""Runs that are drawn: the last ones."""
_MOST_REPORTS = 300
"""Reports that the page holds, those that fail first. One takes about 0.1 s to write and 15 kB. Not measured beyond that."""
_SHARED = ("@@css@@", "@@library@@", "@@own@@")
"""What stands in a report in the place of what all of them share."""


def check() -> None:
    """Say what is missing before the work begins."""
    html.check()
    change_points.check()


def write(store: Store, run: int, path: str | Path) -> None:
    """Write the page of the suite that this run is of."""
    write_text(page(store, store.run(run).suite), path, what="the dashboard")


def page(store: Store, suite: str | None = None) -> str:
    """The page: the newest result of every model, with its history."""
    import jinja2
    from markupsafe import Markup

    check()
    recorded = series.read(store, suite)
    if not recorded.runs:
        raise UsageError("no-runs", "there is no run with results to show", where=str(store.path))
    own = _asset("suite", "dashboard.js")
    template = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    ).from_string(_asset("suite", "dashboard.html.jinja"))
    reports = dict(_reports(store, recorded))
    report_script, library = _asset("report", "report.js"), html.chart_library()
    scripts = (own, report_script, library)
    return template.render(
        title=f"onnxproof: {short(recorded.suite, 60)}",
        css=Markup(_asset("report", "report.css") + _asset("suite", "dashboard.css")),
        report_css=html.script_json(_asset("report", "report.css")),
        own=Markup(own),
        report_script=html.script_json(report_script),
        library=html.script_json(library),
        hashes=[html.script_hash(script) for script in scripts],
        data=html.script_json(_data(recorded)),
        reports=html.script_json(reports),
    )


def report(store: Store, run: int, name: str) -> str:
    """The report of one model in one run."""
    document = store.proof(run, name)
    if document is None:
        raise UsageError("no-proof", f"run {run} has no proof of `{name}`", where=str(store.path))
    return html.dumps(proofs.from_dict(document))


def _asset(package: str, name: str) -> str:
    return (resources.files(f"onnxproof.{package}") / "page" / name).read_text(encoding="utf-8")


def _reports(store: Store, recorded: Recorded) -> Iterator[tuple[str, str]]:
    """The reports of the newest results, those that fail first, compressed."""
    newest = _newest(recorded)
    order = sorted(newest, key=lambda name: (newest[name][1].verdict == "faithful", name))
    shared = (_asset("report", "report.css"), html.chart_library(), _asset("report", "report.js"))
    for name in order[:_MOST_REPORTS]:
        document = store.proof(newest[name][0].id, name)
        if document is None:
            continue
        text = html.dumps(proofs.from_dict(document))
        for content, mark in zip(shared, _SHARED, strict=True):
            text = text.replace(content, mark)
        yield name, base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _newest(recorded: Recorded) -> dict[str, tuple[Run, Result]]:
    """The last result of every model."""
    newest: dict[str, tuple[Run, Result]] = {}
    for run in recorded.runs:
        for name, result in recorded.results[run.id].items():
            newest[name] = (run, result)
    return newest


def _data(recorded: Recorded) -> dict[str, Any]:
    """All that the page's script draws from."""
    runs = recorded.runs[-_MOST_RUNS:]
    examined = history.examine(recorded)
    marks: dict[int, list[str]] = {}
    for earlier, later in pairwise(runs):
        reasons = history.run_reasons(earlier, later)
        if reasons:
            marks[later.id] = [reason_words(reason) for reason in reasons]
    return {
        "suite": short(recorded.suite, 120),
        "runs": [_run(run, marks.get(run.id, [])) for run in runs],
        "models": [
            _model(name, run, result, recorded, runs)
            for name, (run, result) in sorted(_newest(recorded).items())
        ],
        "moves": _moves(examined.moves),
        "unsteady": [short(name, 80) for name in examined.unsteady],
    }


def _run(run: Run, marks: list[str]) -> dict[str, Any]:
    return {
        "id": run.id,
        "date": run.started[:10],
        "commit": short((run.commit_id or "")[:12]),
        "finished": run.finished is not None,
        "marks": marks,
    }


def _moves(moves: Sequence[history.Move]) -> list[dict[str, Any]]:
    """What moved, the newest first; all that moved of one model in one run is one entry."""
    entries: dict[tuple[str, int], dict[str, Any]] = {}
    for move in moves:
        entry = entries.setdefault(
            (move.model, move.run),
            {
                "model": move.model,
                "shown": short(move.model, 80),
                "run": move.run,
                "until": move.until,
                "why": [reason_words(reason) for reason in move.reasons],
                "changes": [],
            },
        )
        before, after = (
            value if isinstance(value, str) else _number(value)
            for value in (move.before, move.after)
        )
        entry["changes"].append(
            {
                "what": move.metric.replace("_", " ").removesuffix(" ms"),
                "before": before,
                "after": after,
                "worse": move.worse,
                "backend": short(move.backend, 60),
            }
        )
    return list(entries.values())[::-1]


def _model(
    name: str, run: Run, result: Result, recorded: Recorded, runs: tuple[Run, ...]
) -> dict[str, Any]:
    """A row, and the trends of its backends: one value a run, null where there is none."""
    results = [recorded.results[each.id].get(name) for each in runs]
    expected: Mapping[str, Any] = result.expected or {}
    return {
        "name": name,
        "shown": short(name, 80),
        "run": run.id,
        "verdict": result.verdict,
        "passed": result.passed,
        "expected": short(str(expected.get("verdict", ""))),
        "known": gate.decide(result).gate is gate.Gate.KNOWN,
        "error": block(result.error)[:_MOST_ERROR],
        "ratio": _number(result.noise_ratio),
        "quality": _number(result.quality),
        "seconds": _number(result.duration_s),
        "tags": [short(tag, 40) for tag in result.tags],
        "backends": [short(backend, 60) for backend in result.backends],
        "summary": short(result.summary or result.error),
        "cause": short(result.cause),
        "measures": [_measure(each) for each in result.measures],
        "verdicts": [None if each is None else each.verdict for each in results],
        "trends": {metric: _trends(metric, results) for metric in METRICS},
    }


def _measure(measure: Measure) -> dict[str, Any]:
    return {
        "backend": short(measure.backend, 60),
        "verdict": measure.verdict,
        "ratio": _number(measure.noise_ratio),
        "quality": _number(measure.quality),
        "latency": _number(measure.latency_ms),
    }


def _trends(metric: str, results: list[Result | None]) -> dict[str, list[float | None]]:
    """By backend; of the model as a whole where no backend was measured."""
    backends = {m.backend: None for result in results if result for m in result.measures}
    trends = {
        short(backend, 60): [_value(metric, backend, result) for result in results]
        for backend in backends or ("",)
    }
    return {backend: values for backend, values in trends.items() if set(values) != {None}}


def _value(metric: str, backend: str, result: Result | None) -> float | None:
    if result is None:
        return None
    sources: dict[str, Any] = {"": result} | {m.backend: m for m in result.measures}
    return _number(getattr(sources.get(backend), metric, None))


def _number(value: float | None) -> float | None:
    """Four digits; what JSON has no number for is as large as it gets, or nothing."""
    if value is None or math.isnan(value):
        return None
    return float(f"{min(value, MOST):.4g}")
