"""The node of a quantized graph whose scale, zero point or axis is wrong."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.counterfactuals.module_parameters import module_parameters
from onnxproof.diagnosis.locate.scene import Scene, name_suspects
from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel.graph import source_of
from onnxproof.quantization.attribution import Study, gain
from onnxproof.quantization.operator_form import as_pairs, has_integer_operators
from onnxproof.quantization.parameter_search import Mended, ParameterSearch
from onnxproof.quantization.qdq import constants
from onnxproof.reference.graph import GraphReference
from onnxproof.reference.protocol import Reference
from onnxproof.results import Location, Suspect
from onnxproof.runtimes.session.execution import feed

Array = np.ndarray[Any, Any]
LEAST_DB = 3.0
"""A parameter that brings less when it is put right is not named: the error's energy is not even halved."""


def locate(scene: Scene) -> Location | None:
    """The nodes whose parameters, put right, mend the answers to ordinary inputs; None where there are none."""
    model = onnx.load(scene.path)
    try:
        mended = search(scene, _ordinary_study(scene, model))
    except (OnnxproofError, ValueError, KeyError, IndexError):
        return None  # a graph that can't be read as pairs and weights has other causes
    if mended is None:
        return None
    suspects = _suspects(model, mended)
    stage = scene.file_stage
    location = Location(stage=stage, compared=len(suspects), evidence=suspects[0].why)
    return name_suspects(location, suspects)


def search(scene: Scene, study: Study) -> Mended | None:
    """The parameters that are wrong, if putting them right brings enough."""
    floats = reference_arrays(scene.reference)
    if has_integer_operators(study.model):
        study = Study(as_pairs(study.model), study.samples, study.reference_outputs)
    mended = ParameterSearch(study, floats, scene.policy.drift_db).run()
    if mended is None or gain(mended.before_db, mended.after_db) < LEAST_DB:
        return None
    return mended


def reference_arrays(reference: Reference) -> dict[str, Array]:
    """The float weights of the reference, a BatchNorm folded into them or not."""
    if reference.session is not None:
        return dict(module_parameters(reference.session.module))
    if isinstance(reference, GraphReference):
        arrays = constants(onnx.load(reference.path))
        floats = {name: array for name, array in arrays.items() if array.dtype == np.float32}
        turned = {f"{n} transposed": np.asarray(a.T) for n, a in floats.items() if a.ndim == 2}
        return floats | turned
    return {}


def _ordinary_study(scene: Scene, model: onnx.ModelProto) -> Study:
    """The witness where its values are ordinary, else the example: what was made up lies beyond every range."""
    inputs: Mapping[str, Array] = scene.case.inputs
    truth = scene.truth
    if not scene.case.ordinary:
        inputs = scene.reference.example()
        truth = scene.reference.truth(inputs) or scene.reference.run(inputs)
    order = [output.onnx_name for output in scene.signature.outputs]
    answers = [
        truth[order.index(value.name)] for value in model.graph.output if value.name in order
    ]
    return Study(model, [("ordinary", feed(dict(inputs), scene.signature))], [answers])


def _suspects(model: onnx.ModelProto, mended: Mended) -> list[Suspect]:
    """The repaired nodes, each once: an integer operator stands for the pairs that it was taken apart into."""
    nodes = {node.output[0]: node for node in mended.model.graph.node}
    nodes |= {node.output[0]: node for node in model.graph.node}
    op_types = {node.name: node.op_type for node in model.graph.node}
    gained = gain(mended.before_db, mended.after_db)
    suspects = []
    for repair in mended.repairs:
        node = nodes[repair.output]
        reader = next((n for n in mended.model.graph.node if repair.output in n.input), node)
        module, source = source_of(reader)
        suspects.append(
            Suspect(
                node=node.name or node.output[0],
                op_type=op_types.get(node.name, node.op_type),
                ratio=gained,
                module=module,
                source=source,
                why=f"{repair.what}; put right, the answers gain {gained:.1f} dB",
            )
        )
    return list({suspect.node: suspect for suspect in reversed(suspects)}.values())[::-1]
