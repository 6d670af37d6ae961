"""The node of a quantized graph whose scale, zero point or axis is wrong."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.counterfactuals.module_parameters import module_parameters
from onnxproof.diagnosis.locate.scene import Scene, name_suspects
from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel import mapped_weights
from onnxproof.onnxmodel.graph import source_of
from onnxproof.options import Policy
from onnxproof.quantization import block_parameters
from onnxproof.quantization.attribution import Study, gain
from onnxproof.quantization.operator_form import operator_name
from onnxproof.quantization.pair_form import in_pair_form
from onnxproof.quantization.parameter_search import Mended, ParameterSearch
from onnxproof.quantization.qdq import constants
from onnxproof.reference.graph import GraphReference
from onnxproof.reference.protocol import Reference
from onnxproof.results import (
    Case,
    Finding,
    Location,
    NoiseKind,
    Signature,
    Suspect,
    Verdict,
)
from onnxproof.runtimes.session.execution import feed
from onnxproof.verification import block_reading
from onnxproof.verification.evidence import Evidence
from onnxproof.verification.rounded_reference import float_weights

Array = np.ndarray[Any, Any]
LEAST_DB = 3.0
"""A parameter that brings less when it is put right is not named: the error's energy is not even halved."""


def locate(scene: Scene) -> Location | None:
    """The nodes whose parameters, put right, mend the answers to ordinary inputs; None where there are none."""
    model = onnx.load(scene.path)
    try:
        mended = search(scene.reference, _ordinary_study(scene, model), scene.policy)
    except (OnnxproofError, ValueError, KeyError, IndexError):
        return None  # a graph that can't be read as pairs and weights has other causes
    if mended is None:
        return None
    suspects = _suspects(model, mended)
    stage = scene.file_stage
    location = Location(stage=stage, compared=len(suspects), evidence=suspects[0].why)
    return name_suspects(location, suspects)


def doubt(evidence: Evidence) -> Evidence:
    """The evidence with a doubt where a file passes although a parameter of it is wrong: it loses decibels that it need not.

    The doubt is shown by the example, which then is the witness for the diagnosis.
    """
    proof = evidence.proof
    example = next((gap for gap in proof.gaps if gap.case == "example"), None)
    if not evidence.file.quantized or proof.verdict is not Verdict.FAITHFUL or example is None:
        return evidence
    if example.noise_kind is not NoiseKind.SIMULATED:
        return evidence
    model = onnx.load(evidence.request.path)
    inputs = evidence.reference.example()
    answers = evidence.reference.run(inputs)
    study = _study(model, evidence.signature, inputs, answers)
    try:
        mended = search(evidence.reference, study, proof.policy, ranges=False)
    except (OnnxproofError, ValueError, KeyError, IndexError):
        return evidence
    if mended is None:
        return evidence
    suspect = _suspects(model, mended)[0]
    finding = Finding(
        code="quant-parameters",
        what=f"`{suspect.node}`: {suspect.why}",
        help="`onnxproof explain` proves it and writes the file without it",
        doubts=True,
    )
    case = Case(name="example", group="ordinary", about="the example inputs", inputs=inputs)
    proof = replace(
        proof, findings=(*proof.findings, finding), witness=replace(case, ordinary=True)
    )
    return replace(evidence, proof=proof.judged(proof.policy))


def has_wrong_weights(evidence: Evidence) -> bool:
    """Whether a weight of a few bits is not the reference's, but for its rounding."""
    weights = block_reading.find(onnx.load(evidence.request.path))
    return bool(block_parameters.find_repairs(weights, float_weights(evidence.reference)))


def search(
    reference: Reference, study: Study, policy: Policy, *, ranges: bool = True
) -> Mended | None:
    """The parameters that are wrong, if putting them right brings enough."""
    if block_reading.keeps_blocks(study.model.graph):
        mended = block_parameters.search(study, float_weights(reference))
        if mended is not None:
            return mended
    floats = reference_arrays(reference)
    mended = ParameterSearch(study, floats, policy.drift_db, ranges).run()
    if mended is None or gain(mended.before_db, mended.after_db) < LEAST_DB:
        return None
    return mended


def reference_arrays(reference: Reference, *, copies: bool = True) -> dict[str, Array]:
    """The float weights of the reference, a BatchNorm folded into them or not; those of a module in float64, or (`copies` is false) as views."""
    session = getattr(reference, "session", None)
    if session is not None:
        module = session.module
        if not hasattr(module, "named_modules"):
            return {}  # a function has no weights
        return dict(module_parameters(module, copies=copies))
    if isinstance(reference, GraphReference):
        arrays = constants(mapped_weights.load(reference.path))
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
    return _study(model, scene.signature, inputs, truth)


def _study(
    model: onnx.ModelProto, signature: Signature, inputs: Mapping[str, Array], truth: list[Array]
) -> Study:
    """One set of inputs, with the answers in the order of the file's outputs."""
    order = [output.onnx_name for output in signature.outputs]
    answers = [
        truth[order.index(value.name)] for value in model.graph.output if value.name in order
    ]
    return Study(in_pair_form(model), [("ordinary", feed(dict(inputs), signature))], [answers])


def _suspects(model: onnx.ModelProto, mended: Mended) -> list[Suspect]:
    """The repaired nodes, each once: an integer operator stands for the pairs that it was taken apart into."""
    nodes = {node.output[0]: node for node in mended.model.graph.node}
    nodes |= {node.output[0]: node for node in model.graph.node}
    producers = {name: node for node in mended.model.graph.node for name in node.output}
    op_types = {node.name: node.op_type for node in model.graph.node}
    gained = gain(mended.before_db, mended.after_db)
    suspects = []
    for repair in mended.repairs:
        node = nodes[repair.output]
        neighbour = next((n for n in mended.model.graph.node if repair.output in n.input), node)
        if node.op_type == "QuantizeLinear":  # it rounds what stands before it
            neighbour = producers.get(node.input[0], neighbour)
        module, source = source_of(neighbour)
        suspects.append(
            Suspect(
                node=operator_name(node),
                op_type=op_types.get(operator_name(node), node.op_type),
                ratio=gained,
                module=module,
                source=source,
                why=f"{repair.what}; put right, the answers gain {gained:.1f} dB",
            )
        )
    return list({suspect.node: suspect for suspect in reversed(suspects)}.values())[::-1]
