"""The overlay for Model Explorer: the structure that its `node_data_builder` documents, and keys that its ONNX adapter finds."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import onnx
import pytest
from support.linear_files import linear
from support.made_proofs import large

from onnxproof.report import overlay
from onnxproof.results.proof import Proof

COLOUR = {"type": "string", "pattern": "^#[0-9a-f]{6}$"}
RESULT = {
    "type": "object",
    "required": ["value"],
    "properties": {"value": {"type": "number"}, "bgColor": COLOUR, "textColor": COLOUR},
    "additionalProperties": False,
}
THRESHOLD = {
    "type": "object",
    "required": ["value", "bgColor"],
    "properties": {"value": {"type": "number"}, "bgColor": COLOUR, "textColor": COLOUR},
    "additionalProperties": False,
}
GRAPH = {
    "type": "object",
    "required": ["results"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "results": {"type": "object", "additionalProperties": RESULT},
        "thresholds": {"type": "array", "items": THRESHOLD},
    },
}
SCHEMA = {"type": "object", "minProperties": 1, "additionalProperties": GRAPH}
"""ModelNodeData of ai-edge-model-explorer 0.1: graphs by their ids; NodeDataResult and ThresholdItem with these fields and no others that we use."""


@pytest.fixture
def located(tmp_path: Path) -> Proof:
    """A proof of a real file, whose names the overlay must use, with ratios that JSON does not have."""
    model, names = onnx.load(linear(tmp_path / "plain.onnx")), ["/linear/Gemm", "/act/Relu"]
    model.graph.node[0].output[0] = "hidden"
    model.graph.node.append(onnx.helper.make_node("Relu", ["hidden"], ["y"]))
    for node, name in zip(model.graph.node, names, strict=True):
        node.name = name
    path = tmp_path / "a.onnx"
    onnx.save(model, path)
    proof = large(20, ("ort",), len(names))
    assert proof.profile is not None and proof.location is not None
    nodes = tuple(
        replace(node, node=name, ratio=math.nan if place else 3.5)
        for place, (node, name) in enumerate(zip(proof.profile.nodes, names, strict=True))
    )
    suspect = replace(proof.location.suspects[0], node=names[-1], ratio=math.inf)
    return replace(
        proof,
        candidate=str(path),
        profile=replace(proof.profile, nodes=nodes),
        location=replace(proof.location, nodes=(names[-1],), suspects=(suspect,)),
    )


def written(proof: Proof, folder: Path) -> dict[str, Any]:
    overlay.write(proof, folder / "overlay.json")
    text = (folder / "overlay.json").read_text()
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))  # type: ignore[no-any-return]


def test_it_has_the_documented_structure_and_the_files_own_names(
    located: Proof, tmp_path: Path
) -> None:
    made = written(located, tmp_path)
    jsonschema.validate(made, SCHEMA)
    graph = onnx.load(located.candidate).graph
    assert list(made) == [graph.name]
    assert set(made[graph.name]["results"]) == {node.name for node in graph.node}


def test_the_guilty_node_stands_out_and_the_thresholds_rise(located: Proof, tmp_path: Path) -> None:
    (made,) = written(located, tmp_path).values()
    assert located.location is not None
    marked = [name for name, result in made["results"].items() if "bgColor" in result]
    assert marked == [located.location.nodes[0]]
    bounds = [threshold["value"] for threshold in made["thresholds"]]
    assert (
        bounds == sorted(bounds)
        and bounds[0] == located.policy.noise_limit
        and bounds[-1] >= made["results"][marked[0]]["value"]
    )
