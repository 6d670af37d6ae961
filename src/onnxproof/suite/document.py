"""A run of a suite as the document that `--json` writes; the published schema is made from these dataclasses.

`python -m onnxproof.suite.document > docs/suite-results.schema.json` writes the schema.
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxproof.report.schema import document_of
from onnxproof.report.writers.json import to_plain
from onnxproof.results.verdicts import Verdict
from onnxproof.suite.gate import Gate
from onnxproof.suite.records import Measure, Result
from onnxproof.suite.run import SuiteResult

SCHEMA = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """One model: its verdict, what that means for the gate, and what was measured."""

    name: str
    verdict: Verdict
    gate: Gate
    why: str
    """Why the gate says so, where the verdict alone does not."""
    passed: bool
    summary: str
    error: str
    backends: tuple[str, ...]
    noise_ratio: float | None
    quality: float | None
    cause: str
    duration_s: float
    peak_mb: float | None
    attempts: int
    key: str
    tags: tuple[str, ...]
    expected: Mapping[str, Any] | None
    reused_from: int | None
    """The run whose result this is, where nothing had changed since."""
    measures: tuple[Measure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteDocument:
    """A run of a suite."""

    suite: str
    manifest: str
    run: int
    started: str
    finished: str | None
    commit: str | None
    engine: str
    versions: Mapping[str, str]
    hardware: Mapping[str, Any]
    seed: int
    exit_code: int
    counts: Mapping[str, int]
    """Models by verdict."""
    gates: Mapping[str, int]
    """Models by what they mean for the gate."""
    missing: tuple[str, ...] = ()
    """Models without a result, since the run was stopped."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Models that were not run again under `--changed`, each with why."""
    changed: Mapping[str, str] = field(default_factory=dict)
    """Models that were run under `--changed`, each with what changed."""
    results: tuple[ModelRecord, ...] = ()
    """Exactly one for each model that has a result, in the manifest's order."""


def document(suite: SuiteResult) -> SuiteDocument:
    """The document of a run."""
    run = suite.run
    return SuiteDocument(
        suite=run.suite,
        manifest=str(suite.manifest.path),
        run=run.id,
        started=run.started,
        finished=run.finished,
        commit=run.commit_id,
        engine=run.engine,
        versions=run.versions,
        hardware=run.hardware,
        seed=run.seed,
        exit_code=suite.exit_code,
        counts=dict(Counter(result.verdict for result in suite.results)),
        gates=dict(Counter(decision.gate.value for decision in suite.decisions.values())),
        missing=suite.missing,
        skipped=suite.skipped,
        changed=suite.reasons,
        results=tuple(_record(suite, result) for result in suite.results),
    )


def _record(suite: SuiteResult, result: Result) -> ModelRecord:
    decision = suite.decisions[result.name]
    return ModelRecord(
        name=result.name,
        verdict=Verdict(result.verdict),
        gate=decision.gate,
        why=decision.why,
        passed=result.passed,
        summary=result.summary,
        error=result.error,
        backends=result.backends,
        noise_ratio=result.noise_ratio,
        quality=result.quality,
        cause=result.cause,
        duration_s=round(result.duration_s, 4),
        peak_mb=result.peak_mb,
        attempts=result.attempts,
        key=result.key,
        tags=result.tags,
        expected=result.expected,
        reused_from=result.reused_from,
        measures=result.measures,
    )


def plain(suite: SuiteResult) -> dict[str, Any]:
    """The document in dicts and lists, with the version of its form in front."""
    values: dict[str, Any] = to_plain(document(suite))
    return {"schema": SCHEMA} | values


def schema() -> dict[str, Any]:
    """The published schema."""
    return document_of(SuiteDocument, "onnxproof suite results", SCHEMA)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
