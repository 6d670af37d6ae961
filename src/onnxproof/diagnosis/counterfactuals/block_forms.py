"""Weights in blocks with more bits: as many of the costliest matrices as it takes."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from onnxproof.diagnosis.counterfactuals.workbench import Workbench
from onnxproof.quantization import block_parameters
from onnxproof.quantization.attribution import Study
from onnxproof.quantization.blockwise import verified_costs
from onnxproof.quantization.blockwise.float_twin import StoredMatrix, store_blocks, stored_matrices
from onnxproof.quantization.blockwise.form import Blocks, Form
from onnxproof.quantization.blockwise.rounding import nearest_blocks
from onnxproof.verification import block_reading, block_weights
from onnxproof.verification.block_weights import BlockWeight
from onnxproof.verification.rounded_reference import float_weights

_SHORTEST = 16
"""Members of the shortest block that MatMulNBits knows."""
_EIGHT = 8


@dataclass(frozen=True, kw_only=True)
class FinerFile:
    """The file with some matrices in 8 bits."""

    model: onnx.ModelProto
    names: tuple[str, ...]
    more_bytes: int


def finer_files(workbench: Workbench, study: Study) -> Iterator[FinerFile]:
    """One, two, four and more of the costliest matrices in 8 bits, and at last all that have fewer."""
    weights = block_reading.find(study.model)
    floats = float_weights(workbench.scene.reference)
    if block_parameters.find_repairs(weights, floats):
        return  # a matrix that is wrong is no matter of bits
    matrices = stored_matrices(weights, block_weights.find_origins(weights, floats))
    costs = verified_costs.measure_file(study.model, matrices, study.samples, workbench.deadline)
    if costs is None:
        return
    by_name = {each.name: each for each in matrices}
    ordered = [by_name[cost.name] for cost in costs.matrices]
    coarse = [each for each in ordered if each.weight.packing.bits < _EIGHT]
    count = 1
    while coarse:
        file = _finer(study.model, coarse[:count])
        if file is None:
            return
        yield file
        if count >= len(coarse):
            return
        count = min(2 * count, len(coarse))


def _finer(model: onnx.ModelProto, matrices: list[StoredMatrix]) -> FinerFile | None:
    chosen: dict[BlockWeight, Blocks] = {}
    more = 0
    for each in matrices:
        form = Form(bits=_EIGHT, block=max(each.weight.packing.block, _SHORTEST))
        blocks = nearest_blocks(each.plain, form, np.ones(each.plain.shape[1], np.float32))
        chosen |= dict.fromkeys(each.weights, blocks)
        more += max(0, form.size(*each.plain.shape) - each.weight.storage.size)
    changed = store_blocks(model, chosen)
    if changed is None:
        return None
    names = tuple(each.name for each in matrices)
    return FinerFile(model=changed, names=names, more_bytes=more)
