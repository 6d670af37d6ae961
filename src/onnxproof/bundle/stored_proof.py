"""What a stored proof says of how it was made, so that its cases can be run again for a bundle."""

from dataclasses import dataclass
from pathlib import Path

from onnxproof.bundle.manifest import BundleError
from onnxproof.options import VerifyOptions
from onnxproof.report.writers import json


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRequest:
    """The verification behind a stored proof."""

    origin: str
    path: Path
    options: VerifyOptions


def request_of(path: Path) -> StoredRequest:
    """The verification that made the proof in this file."""
    proof = json.read(path)
    if not proof.origin:
        raise BundleError(
            "no-origin",
            "this proof does not say how to load its reference: it was handed over in Python, or an older onnxproof wrote it",
            where=str(path),
            help="call `proof.to_bundle(path)` where it is made, or `onnxproof verify ... --bundle PATH`",
        )
    return StoredRequest(
        origin=proof.origin,
        path=Path(proof.candidate),
        options=VerifyOptions(
            backends=proof.backends,
            policy=proof.policy,
            budget_s=proof.budget_s,
            seed=proof.seed,
            only=proof.chosen,
            explain=False,
        ),
    )
