"""A quantized candidate: does the runtime leave the graph, or the graph the reference? And which rounding costs most?"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.locate import parameters
from onnxproof.diagnosis.locate.scene import Located, Scene, name_suspects
from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel.graph import source_of
from onnxproof.quantization.attribution import Study, gain
from onnxproof.quantization.operator_form import operator_name
from onnxproof.quantization.pair_form import in_pair_form
from onnxproof.quantization.qdq import Pair
from onnxproof.quantization.qdq_edit import without_rounding
from onnxproof.results import Location, Stage, Suspect
from onnxproof.results.proof import Proof
from onnxproof.runtimes import ort
from onnxproof.runtimes import reference as standard
from onnxproof.runtimes.session.execution import feed

Array = np.ndarray[Any, Any]
_MOST_TRIALS = 12
"""Roundings that are taken out, one at a time: each is a run of the model. Not measured."""
_MOST_SUSPECTS = 4
_LEAST_GAIN_DB = 0.5
"""A rounding is named if the answers gain more than this without it. Not measured."""
_LEAST_SHARE = 0.1
"""Of the cost of all matrices in blocks: those with less are not named. Not measured."""
_TINY = 1e-30


def locate(scene: Scene, locate_by_truth: Callable[[Scene], Located]) -> Located:
    """Where it went wrong.

    1. A wrong scale, zero point or axis: its node, whether the runtime hides the fault or shows it.
    2. Beyond what quantization explains it is the runtime: then the simulated graph is the truth.
    3. Else the values whose rounding costs most.
    """
    assert scene.gap is not None
    by_parameters = parameters.locate(scene)
    if by_parameters is not None:
        return Located(location=by_parameters)
    if scene.gap.noise_ratio > scene.policy.runtime_limit:
        answers = _simulate(scene)
        if answers is not None:
            dtypes = [answer.dtype for answer in answers]
            simulated = replace(
                scene,
                truth=answers,
                dtypes=dtypes,
                gap=None,
            )
            # what was traced there belongs to another truth than the causes work with
            return Located(location=locate_by_truth(simulated).location)
    return Located(location=_costly_roundings(scene))


def _simulate(scene: Scene) -> list[Array] | None:
    """The answers of the graph itself: by the standard in float64, or else without optimisation."""
    openings: tuple[Callable[[], Any], ...] = (
        lambda: standard.open(scene.path, "float64"),
        lambda: ort.open(scene.path, "disabled"),
    )
    feeds = feed(scene.case.inputs, scene.signature)
    for open_session in openings:
        try:
            session = open_session()
            outputs = dict(zip(session.output_names, session.run(feeds), strict=True))
        except OnnxproofError:
            continue
        answers = [outputs.get(output.onnx_name or "") for output in scene.signature.outputs]
        present = [answer for answer in answers if answer is not None]
        if len(present) < len(answers):
            return None
        return present
    return None


def _costly_roundings(scene: Scene) -> Location:
    """Take one rounding out after the other, and measure what the answers gain."""
    model = in_pair_form(onnx.load(scene.path))
    study = _study(scene, model)
    ranked = sorted(study.pairs, key=lambda pair: -_coarseness(study, pair))[:_MOST_TRIALS]
    suspects = _named_by_gain(study, model, ranked) or _named_by_range(study, model)
    location = Location(
        stage=Stage.GRAPH,
        compared=len(ranked),
        evidence=f"{study.graph_db:.1f} dB; no single rounding makes the difference",
    )
    if not suspects:
        return location
    return name_suspects(replace(location, evidence=suspects[0].why), suspects)


def name_costly_matrices(proof: Proof, model: onnx.ModelProto) -> Proof:
    """The matrices that cost most, where no single node was found."""
    location = proof.location
    total = sum(each.cost for each in proof.matrices)
    if location is None or location.nodes or total <= 0:
        return proof
    nodes = {node.name or node.output[0]: node for node in model.graph.node}
    suspects = []
    for each in proof.matrices[:_MOST_SUSPECTS]:
        share = each.cost / total
        if each.name not in nodes or share < _LEAST_SHARE:
            break
        module, source = source_of(nodes[each.name])
        why = f"its weights in {each.form} cost {each.cost:.3g} {each.unit}, {share:.0%} of all"
        suspects.append(
            Suspect(
                node=each.name,
                op_type=nodes[each.name].op_type,
                ratio=share,
                module=module,
                source=source,
                why=why,
            )
        )
    if not suspects:
        return proof
    named = name_suspects(replace(location, evidence=suspects[0].why), suspects)
    return replace(proof, location=named)


def _study(scene: Scene, model: onnx.ModelProto) -> Study:
    """The witness, and its truth in the order of the file's outputs."""
    outputs = [value.name for value in model.graph.output]
    pairs = zip(scene.signature.outputs, scene.truth, strict=True)
    truths = {
        outputs.index(output.onnx_name): true
        for output, true in pairs
        if output.onnx_name is not None
    }
    feeds = feed(scene.case.inputs, scene.signature)
    return Study(model, [("witness", feeds)], [[truths[place] for place in sorted(truths)]])


def _named_by_gain(
    study: Study,
    model: onnx.ModelProto,
    ranked: list[Pair],
) -> list[Suspect]:
    """The roundings without which the answers gain most."""
    gains = [
        (gain(study.graph_db, study.sqnr_db(without_rounding(model, [pair.value]))), pair)
        for pair in ranked
    ]
    worth = [(gained, pair) for gained, pair in gains if gained > _LEAST_GAIN_DB]
    worth.sort(key=lambda item: -item[0])
    return [
        _suspect(
            model,
            pair,
            gained,
            f"without its rounding of `{pair.value}` the answers gain {gained:.1f} dB",
        )
        for gained, pair in worth[:_MOST_SUSPECTS]
    ]


def _named_by_range(study: Study, model: onnx.ModelProto) -> list[Suspect]:
    """Several roundings are off at once: the ones whose range fits the data least."""
    seen = [pair for pair in study.pairs if pair.value in study.statistics]
    seen.sort(key=lambda pair: -_range_error(study, pair))
    why = "no single rounding makes the difference; the range of `{}` fits the data least"
    return [_suspect(model, pair, 0.0, why.format(pair.value)) for pair in seen[:_MOST_SUSPECTS]]


def _suspect(
    model: onnx.ModelProto,
    pair: Pair,
    ratio: float,
    why: str,
) -> Suspect:
    """The QuantizeLinear of a pair, with the module and the line of what it rounds."""
    quantizers = {
        node.output[0]: node for node in model.graph.node if node.op_type == "QuantizeLinear"
    }
    node = quantizers[pair.quantize]
    producer = next((n for n in model.graph.node if pair.value in n.output), node)
    module, source = source_of(producer)
    return Suspect(
        node=operator_name(node),
        op_type=node.op_type,
        ratio=ratio,
        module=module,
        source=source,
        why=why,
    )


def _range_error(study: Study, pair: Pair) -> float:
    """How far a range is from what the data reaches, in octaves."""
    low, high = study.observed_range(pair)
    limit = max(abs(float(limit.reshape(-1)[0])) for limit in pair.limits)
    return abs(math.log2(max(abs(low), abs(high), _TINY) / max(limit, _TINY)))


def _coarseness(study: Study, pair: Pair) -> float:
    """The step of a rounding in units of its value: of the reach of its flattest channels, or of its rms."""
    step = float(pair.scale.reshape(-1)[0])
    stats = study.statistics.get(pair.value)
    if stats is None:
        return 0.0
    if stats.channel_low is None or stats.channel_high is None:
        return step / max(stats.rms, _TINY)
    reach = stats.channel_high - stats.channel_low
    varying = reach[reach > 0]
    if not varying.size:
        return 0.0
    return float(step / np.percentile(varying, 10))
