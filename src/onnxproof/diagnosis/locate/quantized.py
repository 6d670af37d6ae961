"""A quantized candidate: is it the runtime that leaves the graph, or the graph that leaves the reference? And which rounding costs most?"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx

from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel.graph import source_of
from onnxproof.options import Policy
from onnxproof.quantization.attribution import Study, gain
from onnxproof.quantization.qdq import Pair
from onnxproof.quantization.qdq_edit import without_rounding
from onnxproof.results import Location, Stage, Suspect
from onnxproof.runtimes import ort
from onnxproof.runtimes import reference as standard
from onnxproof.runtimes.session.execution import feed

if TYPE_CHECKING:
    from onnxproof.diagnosis.locate.scene import Scene

_ASKED = 12
_MOST = 4
_WORTH_DB = 0.5


def locate(scene: "Scene", by_truth: Callable[["Scene"], Location | None]) -> Location | None:
    """Beyond what quantization explains it is the runtime: then the simulated graph is the truth. Else the values whose rounding costs most."""
    assert scene.gap is not None
    if scene.gap.noise_ratio > Policy().runtime_limit:
        said = _simulated(scene)
        if said is not None:
            return by_truth(
                replace(scene, truth=said, dtypes=[answer.dtype for answer in said], gap=None)
            )
    return _costly(scene)


def _simulated(scene: "Scene") -> list[np.ndarray] | None:
    feeds = feed(scene.case.inputs, scene.signature)
    for opened in (
        lambda: standard.open(scene.path, "float64"),
        lambda: ort.open(scene.path, "disabled"),
    ):
        try:
            session = opened()
            found = dict(zip(session.output_names, session.run(feeds), strict=True))
            answers = [found.get(output.onnx_name or "") for output in scene.signature.outputs]
            return (
                [answer for answer in answers if answer is not None]
                if all(a is not None for a in answers)
                else None
            )
        except OnnxproofError:
            continue
    return None


def _costly(scene: "Scene") -> Location:
    """Take one rounding out after the other, and see what the answers gain."""
    model = onnx.load(scene.path)
    names = [output.onnx_name for output in scene.signature.outputs]
    order = [
        [value.name for value in model.graph.output].index(name)
        for name in names
        if name is not None
    ]
    wanted = dict(zip(order, scene.truth, strict=False))
    study = Study(
        model,
        [("witness", feed(scene.case.inputs, scene.signature))],
        [[wanted[place] for place in sorted(wanted)]],
    )
    makers = {node.output[0]: node for node in model.graph.node if node.op_type == "QuantizeLinear"}
    ranked = sorted(
        study.pairs,
        key=lambda pair: -_coarse(study, pair.value, float(pair.scale.reshape(-1)[0])),
    )[:_ASKED]
    gains = [
        (gain(study.graph_db, study.sqnr_db(without_rounding(model, [pair.value]))), pair)
        for pair in ranked
    ]
    found = sorted((g for g in gains if g[0] > _WORTH_DB), key=lambda g: -g[0])[:_MOST]
    if not found:  # several are off at once: the one whose range fits the data least comes first
        found = sorted(
            ((0.0, pair) for pair in study.pairs if pair.value in study.statistics),
            key=lambda g: -_off(study, g[1]),
        )[:_MOST]
    suspects = []
    for recovered, pair in found:
        node = makers[pair.quantize]
        module, source = source_of(
            next((n for n in model.graph.node if pair.value in n.output), node)
        )
        suspects.append(
            Suspect(
                node=node.name or node.output[0],
                op_type=node.op_type,
                ratio=recovered,
                module=module,
                source=source,
                why=f"without its rounding of `{pair.value}` the answers gain {recovered:.1f} dB"
                if recovered
                else f"no single rounding makes the difference; the range of `{pair.value}` fits the data least",
            )
        )
    first = suspects[0] if suspects else None
    return Location(
        stage=Stage.GRAPH,
        nodes=tuple(s.node for s in suspects),
        suspects=tuple(suspects),
        compared=len(ranked),
        module=first.module if first else None,
        source=first.source if first else None,
        evidence=first.why
        if first
        else f"{study.graph_db:.1f} dB; no single rounding makes the difference",
    )


def _off(study: Study, pair: Pair) -> float:
    """How far a range is from what the data reaches, in octaves."""
    low, high = study.observed_range(pair)
    here = max(abs(float(limit.reshape(-1)[0])) for limit in pair.limits)
    return abs(math.log2(max(abs(low), abs(high), 1e-30) / max(here, 1e-30)))


def _coarse(study: Study, value: str, step: float) -> float:
    stats = study.statistics.get(value)
    if stats is None:
        return 0.0
    if stats.channel_low is not None and stats.channel_high is not None:
        reach = stats.channel_high - stats.channel_low
        alive = reach[reach > 0]
        return float(step / np.percentile(alive, 10)) if alive.size else 0.0
    return step / max(stats.rms, 1e-30)
