"""Sums don't fit: integer biases end at their type's limit, or products are added in 16 bits.

What it is: a bias is kept in int32 with the scale of input times weight; where that scale is tiny, the bias does not fit. CPUs without VNNI
add pairs of uint8 x int8 products in int16, and pairs beyond 32,767 are cut.

Why it happens: weights of nearly zero beside a large bias; full-range weights on an older CPU.

How to see it: with float biases, or with seven-bit weights on the same runtime, the answers are right.

How to fix it: keep such biases in float; `--target avx2` keeps weights to seven bits in the layers whose data saturates.

Example: a quantized model that is right on the laptop and wrong on the server.
"""

from pathlib import Path

import onnx

from onnxproof.diagnosis.counterfactuals import quantized_study
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel import large_models
from onnxproof.quantization.attribution import Study, gain
from onnxproof.quantization.saturation import (
    find_saturated_biases,
    measure_saturation,
    reduce_weight_range,
)
from onnxproof.quantization.scoring import compare
from onnxproof.results import Fix
from onnxproof.runtimes import open_session
from onnxproof.system import temporary

TITLE = "sums don't fit their integers"
PRICE = -25


def test(workbench: Workbench) -> Tried | str:
    """Float biases where the integer ones are full; seven-bit weights where the runtime leaves its own graph."""
    study = quantized_study.study(workbench)
    if isinstance(study, str):
        return study
    full = find_saturated_biases(study.model)
    if full:
        return quantized_study.granted(
            workbench,
            study,
            study.restore_saturated_biases(),
            what=f"with the biases in float that don't fit int32 ({full[0]})",
            fix="keep these biases in float",
        )
    gap = workbench.scene.gap
    if gap is None or gap.noise_ratio <= workbench.policy.runtime_limit:
        return "no bias is full, and the runtime does what the graph says"
    return _try_seven_bits(workbench, study)


def _try_seven_bits(workbench: Workbench, study: Study) -> Tried | str:
    backend = workbench.scene.backend
    model = reduce_weight_range(study.model)
    before = _level_on_backend(backend, study, study.model)
    after = _level_on_backend(backend, study, model)
    shares = measure_saturation(study.model, study.samples)
    if gain(before, after) < quantized_study.LEAST_DB or not shares:
        return f"seven-bit weights change {before:.1f} dB to {after:.1f} dB"
    worst = max(shares, key=lambda name: shares[name])
    judgement = None
    if after >= workbench.policy.drift_db:
        judgement = quantized_study.judge_on_backend(workbench, study.model, model)
    return Tried(
        judgement=judgement,
        after=10 ** (-after / 20),
        model=model,
        fix=Fix(kind="graph", what="seven-bit weights: --target avx2"),
        evidence=f"with seven-bit weights {before:.1f} dB become {after:.1f} dB on {backend}; in {worst} {shares[worst]:.1%} of the outputs hold a pair beyond int16",
    )


def _level_on_backend(backend: str, study: Study, model: onnx.ModelProto) -> float:
    """The signal-to-noise ratio of a graph on the backend that showed the fault, in dB."""
    with temporary.Folder() as folder:
        path = Path(folder) / "model.onnx"
        large_models.save(model, path)
        try:
            session = open_session(backend, path)
            outputs = [
                [array for array in session.run(batch) if array is not None]
                for _, batch in study.samples
            ]
            return compare(study.reference_outputs, outputs).sqnr_db
        except OnnxproofError:
            return float("-inf")
