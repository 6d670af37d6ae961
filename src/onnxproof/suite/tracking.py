"""The results of a suite in MLflow: a run for the suite, and below it one for each model."""

import math
from collections import Counter

from onnxproof.report.mlflow import Tracker
from onnxproof.report.writers import json as proofs
from onnxproof.suite.records import Result, Run
from onnxproof.suite.store import Store


def log(store: Store, run: int, uri: str) -> str:
    """Log one run of a suite, and tag the newest version of each registered model of the same name; gives the id of the suite's run."""
    tracker = Tracker(uri)
    recorded = store.run(run)
    results = store.results(run)
    parent = tracker.log_summary(recorded.suite, _counts(results), _tags(recorded))
    for result in results:
        _log_model(tracker, store, recorded, result, parent)
    return parent


def _log_model(tracker: Tracker, store: Store, run: Run, result: Result, parent: str) -> None:
    tags = {**_tags(run), "onnxproof.tags": ", ".join(result.tags)}
    document = store.proof(run.id, result.name)
    if document is None:
        verdict = {"onnxproof.verdict": result.verdict, "onnxproof.error": result.error[:500]}
        tracker.log_summary(result.name, dict(_metrics(result)), {**tags, **verdict}, parent)
        return
    proof = proofs.from_dict(document)
    logged = tracker.log(proof, name=result.name, parent=parent, tags=tags)
    version = tracker.newest_version(result.name)
    if version is not None:
        tracker.tag_version(result.name, version, proof, logged)


def _counts(results: list[Result]) -> dict[str, float]:
    verdicts = Counter(result.verdict for result in results)
    return {"models": float(len(results)), **{name: float(n) for name, n in verdicts.items()}}


def _metrics(result: Result) -> list[tuple[str, float]]:
    values = {"noise_ratio": result.noise_ratio, "seconds": result.duration_s}
    return [(name, v) for name, v in values.items() if v is not None and math.isfinite(v)]


def _tags(run: Run) -> dict[str, str]:
    tags = {"onnxproof.suite": run.suite, "onnxproof.suite_run": str(run.id)}
    if run.commit_id:
        tags["mlflow.source.git.commit"] = run.commit_id
    return tags | {f"version.{name}": version for name, version in run.versions.items()}
