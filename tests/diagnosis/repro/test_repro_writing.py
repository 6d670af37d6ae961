"""The files of a repro, and what is said where there is nothing to write."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from safetensors.numpy import load_file
from support import made_proofs
from support.two_files import normal, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.locate.scene import Located, Scene
from onnxproof.diagnosis.repro.writing import write_repro
from onnxproof.errors import OnnxproofError, UsageError
from onnxproof.results import Location, Stage, Suspect
from onnxproof.results.proof import Proof

X = normal(4, 6)
FILES = ["inputs.safetensors", "model.onnx", "outputs.safetensors", "report.md", "repro.py"]


def model(factor: float) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], "turn"),
        helper.make_node("Mul", ["t", "factor"], ["m"], "scale"),
        helper.make_node("Sin", ["m"], ["y"], "sine"),
    ]
    return graph_model(nodes, {"x": X}, {"factor": np.float32(factor).reshape(())})


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return scene_between(tmp_path, model(2), model(3), {"x": X})


def located(scene: Scene) -> Located:
    traced, fetch = scene.reference.trace(scene.case.inputs)
    suspect = Suspect(node="scale", op_type="Mul", ratio=9.0)
    location = Location(stage=Stage.EXPORT, nodes=("scale",), suspects=(suspect,))
    return Located(location=location, counterparts={"scale": traced[2]}, fetch=fetch)


def proof(scene: Scene) -> Proof:
    known = located(scene)
    return replace(made_proofs.full(), location=known.location, scene=scene, located=known)


def test_the_files_hold_the_guilty_node_with_its_tensors(scene: Scene, tmp_path: Path) -> None:
    path = write_repro(proof(scene), None, tmp_path / "deep" / "out")
    assert path == tmp_path / "deep" / "out" / "repro.py"
    assert sorted(file.name for file in path.parent.iterdir()) == FILES
    inputs = load_file(path.with_name("inputs.safetensors"))
    truth = load_file(path.with_name("outputs.safetensors"))
    np.testing.assert_array_equal(inputs["t"], X.T)
    np.testing.assert_allclose(truth["m"], X.T * 2, rtol=1e-6)
    cut = onnx.load(path.with_name("model.onnx"))
    assert [node.name for node in cut.graph.node] == ["scale"]
    assert path.with_name("report.md").read_text().startswith("# Mul: wrong values (stage export)")
    assert "LIMITS = {'m': 0.00022}" in path.read_text()


def test_a_scene_that_is_given_goes_before_the_one_of_the_proof(
    scene: Scene, tmp_path: Path
) -> None:
    """The scene of the proof is a healthy one, from which nothing could be cut."""
    (tmp_path / "healthy").mkdir()
    healthy = scene_between(tmp_path / "healthy", model(2), model(2), {"x": X})
    path = write_repro(replace(proof(scene), scene=healthy), scene, tmp_path / "out")
    assert path.exists()


def test_without_what_locating_learned_the_location_is_enough(scene: Scene, tmp_path: Path) -> None:
    """No true value of the node is known then, so the part reaches to the output."""
    path = write_repro(replace(proof(scene), located=None), None, tmp_path / "out")
    cut = onnx.load(path.with_name("model.onnx"))
    assert [node.name for node in cut.graph.node] == ["scale", "sine"]


def test_a_stored_proof_has_no_tensors_to_cut(scene: Scene, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a stored proof holds no tensors") as raised:
        write_repro(replace(proof(scene), scene=None), None, tmp_path / "out")
    assert raised.value.code == "no-scene"
    assert not (tmp_path / "out").exists()


def test_without_a_location_there_is_nothing_to_cut(scene: Scene, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no fault was located") as raised:
        write_repro(replace(proof(scene), location=None), None, tmp_path / "out")
    assert raised.value.code == "nothing-to-reproduce"


def test_a_fault_that_does_not_show_leaves_no_folder(tmp_path: Path) -> None:
    healthy = scene_between(tmp_path, model(2), model(2), {"x": X})
    with pytest.raises(OnnxproofError, match="no part of the model, nor all of it"):
        write_repro(proof(healthy), None, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_can_not_be_made_is_explained(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OnnxproofError, match="the repro"):
        write_repro(proof(scene), None, tmp_path / "file" / "out")
