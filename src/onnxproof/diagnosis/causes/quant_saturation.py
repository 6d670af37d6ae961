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

from onnxproof.diagnosis.counterfactuals.quantized_study import granted, study
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.errors import OnnxproofError
from onnxproof.options import Policy
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


def test(bench: Workbench) -> Tried | str:
    """Float biases where the integer ones are full; seven-bit weights where the runtime leaves its own graph."""
    found = study(bench)
    if isinstance(found, str):
        return found
    full = find_saturated_biases(found.model)
    if full:
        return granted(
            found,
            found.restore_saturated_biases(),
            what=f"with the biases in float that don't fit int32 ({full[0]})",
            fix="keep these biases in float",
        )
    if bench.scene.gap is None or bench.scene.gap.noise_ratio <= Policy().runtime_limit:
        return "no bias is full, and the runtime does what the graph says"
    model = reduce_weight_range(found.model)
    before, after = _on(bench, found, found.model), _on(bench, found, model)
    touched = measure_saturation(found.model, found.samples)
    if gain(before, after) < 3 or not touched:
        return f"seven-bit weights change {before:.1f} dB to {after:.1f} dB"
    worst = max(touched, key=lambda name: touched[name])
    return Tried(
        proven=after >= Policy().drift_db,
        after=10 ** (-after / 20),
        model=model,
        fix=Fix(kind="graph", what="seven-bit weights: --target avx2"),
        evidence=f"with seven-bit weights {before:.1f} dB become {after:.1f} dB on {bench.scene.backend}; in {worst} {touched[worst]:.1%} of the outputs hold a pair beyond int16",
    )


def _on(bench: Workbench, found: Study, model: onnx.ModelProto) -> float:
    """The level of a graph on the backend that showed the fault."""
    with temporary.Folder() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        try:
            session = open_session(bench.scene.backend, path)
            return compare(
                found.reference_outputs,
                [[a for a in session.run(batch) if a is not None] for _, batch in found.samples],
            ).sqnr_db
        except OnnxproofError:
            return float("-inf")
