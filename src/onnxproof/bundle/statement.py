"""The statement of a bundle: in-toto Statement v1 with the predicate test-result, made from the manifest and the proof alone.

Its subjects are the model's files and the manifest, which holds the hash of every other file: who signs it signs them all.
"""

import hashlib
import json
from typing import Any

from onnxproof.bundle.manifest import MANIFEST, PROOF, Manifest
from onnxproof.results import Verdict, judging
from onnxproof.results.proof import Proof

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
_RESULTS = {Verdict.FAITHFUL: "PASSED", Verdict.DRIFT: "WARNED"}


def make(manifest: Manifest, manifest_content: bytes, proof: Proof) -> bytes:
    """The text of `statement.json`."""
    subjects = [
        {"name": file.name, "digest": {"sha256": file.sha256}} for file in manifest.model.files
    ]
    digest = hashlib.sha256(manifest_content).hexdigest()
    subjects.append({"name": MANIFEST, "digest": {"sha256": digest}})
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": subjects,
        "predicateType": PREDICATE_TYPE,
        "predicate": _predicate(manifest, proof),
    }
    return (json.dumps(statement, indent=2, sort_keys=True) + "\n").encode()


def verdicts(proof: Proof) -> dict[str, Verdict]:
    """The verdict on each backend by itself."""
    by_backend = {}
    for backend in proof.backends:
        gaps = [gap for gap in proof.gaps if gap.backend == backend]
        notes = [note for note in proof.notes if note.backend == backend]
        by_backend[backend] = judging.judge(
            gaps, proof.policy, notes=notes, findings=proof.findings
        )
    return by_backend


def _predicate(manifest: Manifest, proof: Proof) -> dict[str, Any]:
    tests: dict[str, list[str]] = {"passedTests": [], "warnedTests": [], "failedTests": []}
    for backend, verdict in verdicts(proof).items():
        kind = _RESULTS.get(verdict, "FAILED").lower()
        tests[f"{kind}Tests"].append(f"{backend}: {verdict.value}")
    proof_file = next(file for file in manifest.files if file.name == PROOF)
    configuration = {
        "name": PROOF,
        "digest": {"sha256": proof_file.sha256},
        "annotations": dict(manifest.environment),
    }
    return {
        "result": _RESULTS.get(manifest.verdict, "FAILED"),
        "configuration": [configuration],
        **tests,
    }
