"""A scale, a zero point or an axis of the quantized file is wrong.

What it is: integers stand for numbers by a scale, a zero point and, where there is a scale for each channel, an axis. One of them is not what the
integers were made with: the axis of a DequantizeLinear, the scale of another layer, scales of channels in another order, a zero point of another
type, a bias whose scale is not that of the layer's input times that of its weights.

Why it happens: a converter that moves weights (transposes, fuses, splits) and leaves their parameters, a hand-edited graph, initializers exchanged by name, a change of type from int8 to uint8.

How to see it: a dequantized weight must be the module's weight but for the rounding of a step, and a range must hold what the float model computes there. The one
parameter put right, the answers are right; for ranges, the others fit.

What it is called: `attribute` for an axis, `weights` for a weight or a bias, `quant-scheme` for a value that is computed.

How to fix it: the fix writes that parameter. At its source: quantize anew after the last change of the graph.

Example: `DequantizeLinear(axis=0)` on a square weight whose scales belong to axis 1.
"""

from onnxproof.diagnosis.counterfactuals import quantized_study
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.diagnosis.locate import parameters
from onnxproof.quantization.parameter_search import Mended
from onnxproof.quantization.weight_parameters import Parameter
from onnxproof.results import Fix

TITLE = "a scale, a zero point or an axis is wrong"
PRICE = -30
CODES = ("attribute", "weights", "quant-scheme")
_CODE_OF = {
    Parameter.AXIS: "attribute",
    Parameter.OF_A_CONSTANT: "weights",
    Parameter.OF_A_RANGE: "quant-scheme",
}
"""What a wrong parameter is called: its axis is an attribute, and a weight with another scale is another weight."""
_MOST_TOLD = 3


def test(workbench: Workbench) -> Tried | str:
    """Put single parameters right, on the data that the file is judged by."""
    study = quantized_study.study(workbench)
    if isinstance(study, str):
        return study
    mended = parameters.search(workbench.scene.reference, study, workbench.policy)
    if mended is None:
        return "no single scale, zero point or axis makes the difference"
    told = "; ".join(dict.fromkeys(_in_words(mended, place) for place in range(_MOST_TOLD)))
    evidence = f"{told}: put right, {mended.before_db:.1f} dB become {mended.after_db:.1f} dB"
    judgement = None
    healthy = quantized_study.healthy_db(workbench)
    if mended.after_db >= healthy:
        judgement = quantized_study.judge_levels(
            workbench, quantized_study.run_graph(workbench, mended.model), healthy=healthy
        )
        evidence = f"{evidence}; so {judgement}"
    return Tried(
        code=_CODE_OF[mended.repairs[0].parameter],
        judgement=judgement,
        after=10 ** (-mended.after_db / 20),
        model=mended.model,
        evidence=evidence,
        fix=Fix(kind="graph", what=f"put the parameters right of {len(mended.repairs)} nodes"),
    )


def _in_words(mended: Mended, place: int) -> str:
    repair = mended.repairs[min(place, len(mended.repairs) - 1)]
    return f"`{repair.output}`: {repair.what}"
