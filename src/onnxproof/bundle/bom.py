"""`bom.json` of a bundle: a CycloneDX ML-BOM of the model with the figures of its proof, made from the proof and the hashes alone."""

import json
import uuid
from typing import Any

from onnxproof.bundle.manifest import ModelFiles
from onnxproof.results import Gap, judging
from onnxproof.results.proof import Proof

_VERSION = "1.6"
_NAMESPACE = uuid.UUID("6f6e6e78-7072-4f6f-8f66-6d6c2d626f6d")
"""For serial numbers that the model's hash decides: the same proof gives the same bytes."""
_MODEL = "model"


def make(proof: Proof, model: ModelFiles) -> bytes:
    """The text of `bom.json`."""
    version = proof.environment.get("onnxproof", "")
    document = {
        "$schema": f"http://cyclonedx.org/schema/bom-{_VERSION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": _VERSION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, model.fingerprint)}",
        "version": 1,
        "metadata": {
            "tools": {
                "components": [{"type": "application", "name": "onnxproof", "version": version}]
            },
            "component": _component(proof, model),
        },
        "components": _files(model),
        "dependencies": [{"ref": _MODEL, "dependsOn": [file.name for file in model.files]}],
    }
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()


def _component(proof: Proof, model: ModelFiles) -> dict[str, Any]:
    properties = {
        "onnxproof:verdict": proof.verdict.value,
        "onnxproof:subject": proof.subject,
        "onnxproof:cases": str(len(proof.sizes)),
        **{f"onnxproof:environment:{name}": value for name, value in proof.environment.items()},
    }
    return {
        "type": "machine-learning-model",
        "bom-ref": _MODEL,
        "name": model.name,
        "description": proof.sentence(),
        "hashes": [{"alg": "SHA-256", "content": model.fingerprint}],
        "modelCard": {
            "modelParameters": {
                "inputs": _formats(proof.signature.inputs),
                "outputs": _formats(proof.signature.outputs),
            },
            "quantitativeAnalysis": {"performanceMetrics": _metrics(proof)},
        },
        "properties": [
            {"name": name, "value": str(value)} for name, value in sorted(properties.items())
        ],
    }


def _formats(infos: Any) -> list[dict[str, str]]:
    formats = [f"{info.name}: {info.dtype}{list(info.shape)}" for info in infos]
    return [{"format": text} for text in dict.fromkeys(formats)]


def _metrics(proof: Proof) -> list[dict[str, str]]:
    """The worst gap of each output on each backend."""
    metrics = []
    for gaps in judging.by_output([gap for gap in proof.gaps if gap.domain is None]):
        worst = max(gaps, key=lambda gap: judging.severity(gap, proof.policy))
        part = f"{worst.backend}, output {worst.output}, case {worst.case}"
        metrics += [
            {"type": name, "value": f"{value:.6g}", "slice": part}
            for name, value in _figures(worst).items()
        ]
    return metrics


def _figures(gap: Gap) -> dict[str, float]:
    return {"noise ratio": gap.noise_ratio, "max abs error": gap.max_abs, "rms error": gap.rms}


def _files(model: ModelFiles) -> list[dict[str, Any]]:
    return [
        {
            "type": "file",
            "bom-ref": file.name,
            "name": file.name,
            "hashes": [{"alg": "SHA-256", "content": file.sha256}],
        }
        for file in model.files
    ]
