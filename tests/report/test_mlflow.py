"""Proofs in MLflow, on a real tracking server that the test starts on 127.0.0.1."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.made_proofs import large

from onnxproof.cli import main
from onnxproof.errors import UsageError
from onnxproof.report import mlflow as tracking
from onnxproof.report.writers import json

PATIENCE_S = 240.0
"""Long enough for a busy machine: it is only waited for when something is amiss."""
pytestmark = [pytest.mark.timeout(900)]  # the server alone may take minutes to start


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with a database in SQLite."""
    for package in ("mlflow", "flask", "sqlalchemy", "alembic", "huey"):
        pytest.importorskip(package, reason="no tracking server: pip install 'onnxproof[test]'")
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--backend-store-uri", f"sqlite:///{folder}/db.sqlite", "--workers", "1"]
    words += ["--artifacts-destination", str(folder / "artifacts")]
    words += ["--host", "127.0.0.1", "--port", str(port)]
    variables = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *words],
            stdout=log,
            stderr=log,
            env=variables,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/health", process, folder / "log")
        yield address
    finally:
        os.killpg(process.pid, 15)
        process.wait(30)


def _wait_for(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(f"no tracking server: {log.read_text()[-800:]}")


@pytest.fixture
def client(server: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=server, registry_uri=server)


def test_a_proof_is_logged_and_the_version_of_the_model_is_tagged(
    server: str, client: Any, tmp_path: Path
) -> None:
    """By `verify --mlflow`, from a stored proof."""
    proof = large(20, ("ort",), 5)
    json.write(proof, tmp_path / "proof.json")
    client.create_registered_model("encoder")
    client.create_model_version("encoder", "s3://nowhere/encoder.onnx")
    words = ["verify", "--from", str(tmp_path / "proof.json"), "--quiet", "--mlflow", server]
    assert main([*words, "--mlflow-version", "encoder/1"]) == 1
    experiment = client.get_experiment_by_name("onnxproof")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.tags["onnxproof.verdict"] == "diverged"
    assert run.data.metrics["noise_ratio"] == pytest.approx(proof.worst.noise_ratio)
    assert run.info.status == "FINISHED"
    artifacts = {artifact.path for artifact in client.list_artifacts(run.info.run_id)}
    assert artifacts == {"proof.json", "report.html"}
    fetched = Path(client.download_artifacts(run.info.run_id, "proof.json", str(tmp_path)))
    assert json.read(fetched).verdict is proof.verdict
    version = client.get_model_version("encoder", "1")
    assert version.tags["onnxproof.verdict"] == "diverged"
    assert version.tags["onnxproof.run"] == run.info.run_id


def test_a_version_that_is_not_there_is_told_and_the_verdict_is_printed(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    json.write(large(20, ("ort",), 5), tmp_path / "proof.json")
    words = ["verify", "--from", str(tmp_path / "proof.json"), "--quiet", "--mlflow", server]
    assert main([*words, "--mlflow-version", "encoder/99"]) == 2
    said = capsys.readouterr()
    assert "DIVERGED" in said.out and "error[mlflow-failed]" in said.err


def test_a_server_that_is_away_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="no client: pip install 'onnxproof[mlflow]'")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(UsageError, match=r"(?s)mlflow-failed.*the verdict stands"):
        tracking.log_proof(large(20, ("ort",), 5), "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--mlflow", "nonsense"], "bad-mlflow"),
        (["--mlflow-version", "a/1"], "`--mlflow-version` needs `--mlflow`"),
    ],
)
def test_words_that_make_no_sense(
    words: list[str], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "a", "b.onnx", *words]) == 2
    assert code in capsys.readouterr().err
