"""The nodes' noise ratios as node data for Model Explorer: load the model there, then this file as custom node data.

Keys are those of its ONNX adapter: a graph goes by its name, a node by its own. A ratio beyond JSON's numbers is written as the largest one. A color of a
threshold is that of the values up to it; a node's own color goes before it.
"""

import json
import math
from pathlib import Path
from typing import Any

from onnxproof.errors import UsageError
from onnxproof.results.proof import Proof
from onnxproof.system.writing import write_text

_LARGEST = 1e15
_COLOURS = ("#c8e6c9", "#fff59d", "#ffb74d", "#e57373")
"""Within the limit, up to ten and a hundred times it, and beyond."""


def write(proof: Proof, path: str | Path) -> None:
    """Write the overlay; the file appears whole or not at all."""
    write_text(json.dumps(make(proof), indent=2) + "\n", path, what="the overlay")


def make(proof: Proof) -> dict[str, Any]:
    """Graph name -> results by node, and the thresholds of their colours."""
    if proof.location is None:
        raise UsageError(
            "nothing-located",
            "no fault was located, so there is nothing to show",
            where=proof.candidate,
        )
    results: dict[str, dict[str, Any]] = {name: {"value": 0.0} for name in proof.location.nodes}
    measured: dict[str, float] = {}
    if proof.profile is not None:
        measured |= {node.node: node.ratio for node in proof.profile.nodes}
    measured |= {suspect.node: suspect.ratio for suspect in proof.location.suspects}
    for name, ratio in measured.items():
        results[name] = {"value": _LARGEST if math.isnan(ratio) else min(ratio, _LARGEST)}
    if proof.location.nodes:
        results[proof.location.nodes[0]] |= {"bgColor": "#d32f2f", "textColor": "#ffffff"}
    limit = proof.policy.noise_limit
    bounds = (limit, 10 * limit, 100 * limit, _LARGEST)
    return {
        _graph_name(proof): {
            "name": "times the rounding noise",
            "results": results,
            "thresholds": [
                {"value": bound, "bgColor": colour}
                for bound, colour in zip(bounds, _COLOURS, strict=True)
            ],
        }
    }


def _graph_name(proof: Proof) -> str:
    """The name of the main graph, from memory or from the file, if it still is where it was."""
    if proof.scene is not None:
        return str(proof.scene.file.model.graph.name)
    from onnxproof.onnxmodel import onnx_file

    return onnx_file.read(proof.candidate).model.graph.name
