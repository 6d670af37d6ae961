"""The smallest sub-model that still shows the fault, with a script that needs numpy and onnxruntime alone.

The guilty node is cut out with the values that it reads and the values that it should have computed. Where it alone
does not show the fault (a fusion, a missing operation, a cast whose error shows later), neighbours are added, up to
the whole model; then every node that is not needed is left out again.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as save_tensors

from onnxproof.diagnosis.locate.scene import Located, Scene
from onnxproof.diagnosis.repro.smallest import Search
from onnxproof.diagnosis.repro.submodel import save
from onnxproof.diagnosis.repro.texts import report, script
from onnxproof.errors import UsageError
from onnxproof.results.proof import Proof
from onnxproof.system import writing


def write_repro(
    proof: Proof,
    scene: Scene | None,
    folder: str | Path,
) -> Path:
    """Write `model.onnx`, `inputs.safetensors`, `outputs.safetensors`, `repro.py` and `report.md`; gives the script's path."""
    scene = scene or proof.scene
    if scene is None:
        raise UsageError(
            "no-scene",
            "a stored proof holds no tensors, so nothing can be cut out of the model",
            help="verify again: `onnxproof explain SUBJECT MODEL --repro DIR`",
        )
    if proof.location is None:
        raise UsageError(
            "nothing-to-reproduce",
            "no fault was located, so there is nothing to reproduce",
            where=proof.candidate,
        )
    located = proof.located or Located(location=proof.location)
    repro = Search(scene, located).smallest()
    submodel = repro.submodel
    folder = Path(folder)
    nodes = [scene.file.model.graph.node[place] for place in submodel.places]
    with writing.explain_write_errors(folder, "the repro"):
        folder.mkdir(parents=True, exist_ok=True)
    with writing.replace_file(folder / "repro.py", what="the repro") as draft:
        save(submodel.model, draft.with_name("model.onnx"))
        draft.with_name("inputs.safetensors").write_bytes(_tensors(submodel.inputs))
        draft.with_name("outputs.safetensors").write_bytes(_tensors(repro.truth))
        draft.with_name("report.md").write_text(report(proof, nodes, repro), encoding="utf-8")
        draft.write_text(script(repro), encoding="utf-8")
    return folder / "repro.py"


def _tensors(arrays: Mapping[str, Any]) -> bytes:
    """The content of a safetensors file."""
    return save_tensors({name: np.array(array, order="C") for name, array in arrays.items()})
