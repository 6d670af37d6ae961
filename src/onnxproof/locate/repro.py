"""The smallest sub-model that still shows the fault, with a script that needs numpy and onnxruntime alone.

The guilty node is cut out with the values that it was given and the values that it should have made. Where it alone
does not show the fault (a fusion, a missing piece, a cast whose harm shows later), the cut grows by neighbours, up to
the whole model; then every node that is not needed is left out again.
"""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from onnxproof.errors import UsageError
from onnxproof.locate._cut import save
from onnxproof.locate._repro_text import report, script
from onnxproof.locate._scene import Scene
from onnxproof.locate._smallest import Search
from onnxproof.proof import Proof


def write_repro(proof: Proof, scene: Scene | None, folder: str | Path) -> Path:
    """Write `model.onnx`, `inputs.safetensors`, `outputs.safetensors`, `repro.py` and `report.md`; gives the script's path."""
    scene = scene or proof.scene
    where = proof.location
    if scene is None:
        raise UsageError("no-scene", "a stored proof holds no tensors, so nothing can be cut out of the model",
                         help="verify again: `onnxproof explain SUBJECT MODEL --repro DIR`")
    if where is None:
        raise UsageError("nothing-to-reproduce", "no fault was located, so there is nothing to reproduce", where=proof.candidate)
    cut = Search(scene, where).smallest()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save(cut.model, folder / "model.onnx")
    save_file({name: np.array(array, order="C") for name, array in cut.given.items()}, folder / "inputs.safetensors")
    save_file({name: np.array(array, order="C") for name, array in cut.truth.items()}, folder / "outputs.safetensors")
    nodes = [scene.file.model.graph.node[place] for place in cut.places]
    (folder / "repro.py").write_text(script(cut), encoding="utf-8")
    (folder / "report.md").write_text(report(proof, nodes, cut), encoding="utf-8")
    return folder / "repro.py"
