"""A fault as a folder: the smallest sub-model that shows it, and a script that needs numpy and onnxruntime alone."""

from pathlib import Path

from onnxproof.diagnosis.repro.writing import write_repro
from onnxproof.results.proof import Proof


def write(proof: Proof, path: str | Path) -> Path:
    """Write the folder; gives the script's path."""
    return write_repro(proof, proof.scene, path)
