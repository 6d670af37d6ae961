"""Proofs in MLflow: metrics, the proof and the report as artifacts, and the verdict as a tag of a registered model's version.

Only the slim client is needed (`onnxproof[mlflow]`). Nothing global is touched: no active run, no tracking address but the one that is given.
"""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import util
from typing import TYPE_CHECKING, Any

from onnxproof.errors import UsageError
from onnxproof.report.writers import html, json
from onnxproof.results import Verdict
from onnxproof.results.proof import Proof

if TYPE_CHECKING:
    pass

EXPERIMENT = "onnxproof"
_SCHEMES = ("http", "https", "file", "sqlite", "databricks")
_RETRIES = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}
"""Unless the user set them: the client's own 7 retries make a server that is away cost minutes."""


def check(uri: str) -> None:
    """Say what is missing before the work begins."""
    if util.find_spec("mlflow") is None:
        raise UsageError(
            "mlflow-missing",
            "logging to MLflow needs a package that is not installed: mlflow-skinny",
            help="pip install 'onnxproof[mlflow]'",
        )
    if uri.partition(":")[0] not in _SCHEMES:
        raise UsageError(
            "bad-mlflow",
            f"`{uri}` is no address of a tracking server",
            help="give one such as http://127.0.0.1:5000",
        )


class Tracker:
    """One experiment on a tracking server."""

    def __init__(self, uri: str, experiment: str = EXPERIMENT) -> None:
        check(uri)
        for name, value in _RETRIES.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        self.uri = uri
        self._experiment = experiment
        self._client: MlflowClient = MlflowClient(tracking_uri=uri, registry_uri=uri)

    def log(
        self,
        proof: Proof,
        *,
        name: str = "",
        parent: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """A run for one proof; gives its id."""
        with self._explained():
            number = self._start(name or proof.candidate, parent, {**_tags(proof), **(tags or {})})
            self._log_metrics(number, dict(_metrics(proof)))
            self._client.log_text(number, json.dumps(proof), "proof.json")
            if all(util.find_spec(package) for package in html.NEEDED):
                self._client.log_text(number, html.dumps(proof), "report.html")
            self._client.set_terminated(number)
        return number

    def log_summary(
        self, name: str, metrics: Mapping[str, float], tags: Mapping[str, str], parent: str = ""
    ) -> str:
        """A run without a proof: that of a whole suite, or of a model that could not be run."""
        with self._explained():
            number = self._start(name, parent, tags)
            self._log_metrics(number, metrics)
            self._client.set_terminated(number)
        return number

    def tag_version(self, model: str, version: str, proof: Proof, run: str) -> None:
        """Write the verdict beside a version of a registered model."""
        with self._explained():
            for key, value in {**_tags(proof), "onnxproof.run": run}.items():
                self._client.set_model_version_tag(model, version, key, value)

    def newest_version(self, model: str) -> str | None:
        """The newest version of a registered model; None where there is no such model."""
        with self._explained():
            quoted = model.replace("'", "\\'")
            versions = self._client.search_model_versions(f"name='{quoted}'")
        return max((str(each.version) for each in versions), key=int, default=None)

    def _start(self, name: str, parent: str, tags: Mapping[str, str]) -> str:
        known = self._client.get_experiment_by_name(self._experiment)
        if known is None:
            experiment = self._client.create_experiment(self._experiment)
        else:
            experiment = known.experiment_id
        more = {"mlflow.parentRunId": parent} if parent else {}
        run = self._client.create_run(experiment, run_name=name, tags={**tags, **more})
        return str(run.info.run_id)

    def _log_metrics(self, run: str, metrics: Mapping[str, float]) -> None:
        for key, value in metrics.items():
            self._client.log_metric(run, key, value)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What the client raises, as an error that says that nothing else is lost."""
        from mlflow.exceptions import MlflowException

        try:
            yield
        except (MlflowException, OSError) as why:
            words = " ".join(str(why).split())[:300]
            raise UsageError(
                "mlflow-failed",
                f"MLflow at {self.uri} did not take it: {words}",
                help="the verdict stands; everything else that was asked for is written",
            ) from why


def log_proof(proof: Proof, uri: str, *, version: str = "") -> str:
    """Log one proof, and tag `NAME/VERSION` of the model registry where that is given; gives the run's id."""
    tracker = Tracker(uri)
    model, slash, number = version.rpartition("/")
    if version and not (slash and model and number):
        raise UsageError(
            "bad-model-version",
            f"`{version}` does not name a version of a registered model",
            help="write NAME/VERSION, such as encoder/3",
        )
    run = tracker.log(proof)
    if version:
        tracker.tag_version(model, number, proof, run)
    return run


def _tags(proof: Proof) -> dict[str, str]:
    tags = {
        "onnxproof.verdict": proof.verdict.value,
        "onnxproof.passed": str(proof.passed).lower(),
        "onnxproof.sentence": proof.sentence()[:500],
        "onnxproof.sha256": proof.hashes.get("candidate", ""),
    }
    if proof.causes:
        tags["onnxproof.cause"] = proof.causes[0].code
    return tags


def _metrics(proof: Proof) -> Iterator[tuple[str, float]]:
    """The worst noise ratio, overall and by backend; decibels of a quantized model; cases and seconds."""
    values: dict[str, Any] = {
        "cases": len({gap.case for gap in proof.gaps}),
        "seconds": proof.seconds.get("total"),
        "quality_db": proof.quality(),
        "faithful": float(proof.verdict is Verdict.FAITHFUL),
    }
    if proof.worst is not None:
        values["noise_ratio"] = proof.worst.noise_ratio
    for backend in proof.backends:
        own = [gap.noise_ratio for gap in proof.gaps if gap.backend == backend and not gap.domain]
        key = "".join(letter if letter.isalnum() else "_" for letter in backend)
        values[f"noise_ratio.{key}"] = max(own, default=None)
    for name, value in values.items():
        if value is not None and math.isfinite(value):
            yield name, float(value)
