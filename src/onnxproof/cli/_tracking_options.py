"""The options of a tracking server: what is logged there, and when."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from onnxproof.errors import UsageError

if TYPE_CHECKING:
    from onnxproof.results.proof import Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracking:
    """Where MLflow keeps the proof."""

    mlflow: Annotated[
        str | None,
        typer.Option(
            "--mlflow",
            metavar="URI",
            help="Log metrics, the proof and the report to this MLflow tracking server.",
        ),
    ] = None
    mlflow_version: Annotated[
        str | None,
        typer.Option(
            "--mlflow-version",
            metavar="NAME/VERSION",
            help="Tag this version of a registered model with the verdict.",
        ),
    ] = None

    def check(self) -> None:
        """Better known now than after the work."""
        if self.mlflow_version is not None and self.mlflow is None:
            raise UsageError(
                "usage",
                "`--mlflow-version` needs `--mlflow`",
                help="--mlflow http://127.0.0.1:5000",
            )
        if self.mlflow is not None:
            from onnxproof.report import mlflow

            mlflow.check(self.mlflow)

    def log(self, deliver: Callable[[Callable[["Proof"], "Proof"]], int]) -> int:
        """Deliver a proof, which is kept on the way, and log it when everything else is written."""
        kept: list[Proof] = []

        def keep(proof: "Proof") -> "Proof":
            kept.append(proof)
            return proof

        code = deliver(keep)
        if self.mlflow is not None and kept:
            from onnxproof.report import mlflow

            mlflow.log_proof(kept[-1], self.mlflow, version=self.mlflow_version or "")
        return code
