"""What a stored proof says of how it was made, so that its cases can be run again for a bundle."""

from dataclasses import dataclass, replace
from pathlib import Path

from onnxproof.bundle.manifest import BundleError
from onnxproof.bundle.write import require_unchanged
from onnxproof.options import VerifyOptions
from onnxproof.report.writers import json
from onnxproof.results.proof import Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRequest:
    """The verification behind a stored proof."""

    proof: Proof
    path: Path
    options: VerifyOptions

    def with_tensors_of(self, again: Proof) -> Proof:
        """The stored proof where the re-run gives the same answers, so that its bundle is always the same; else the re-run."""
        if again.verdict is not self.proof.verdict or _cases(again) != _cases(self.proof):
            return again
        return replace(self.proof, recording=again.recording)


def _cases(proof: Proof) -> set[tuple[str, str, str, float]]:
    """Every gap by its name, with how far it is."""
    return {(gap.backend, gap.case, gap.output, gap.rms) for gap in proof.gaps}


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
    require_unchanged(proof)
    return StoredRequest(
        proof=proof,
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
