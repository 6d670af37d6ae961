"""The file was made in training mode.

What it is: BatchNorm normalises by the statistics of the batch at hand instead of the learned ones, or Dropout drops.

Why it happens: `model.eval()` was forgotten, or the exporter was asked to keep the training mode.

How to see it: the module in training mode gives what the candidate gives; one row's answer depends on its neighbours.

How to fix it: call `model.eval()` before the export; `onnxproof export` always does.

Example: a classifier that is right on large batches and useless on single images.
"""

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING

import onnx
import torch

from onnxproof.diagnosis.counterfactuals.module_run import said, session_of
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench, attribute, set_attribute
from onnxproof.results import Fix

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant
    from onnxproof.reference.traced_value import TracedValue

TITLE = "the file was made in training mode"
PRICE = 10


def test(bench: Workbench) -> Tried | str:
    """Put the reference, or one of its normalisations, into the other mode and see whether it gives what the candidate gives."""
    whole = _whole(bench)
    return whole if isinstance(whole, Tried) else bench.whatif(_variants)


def _variants(entry: "TracedValue") -> "Iterator[Variant]":
    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant, with_arguments

    if "batch_norm" in entry.op and "training" in entry.arguments:
        other = not entry.arguments["training"]
        yield Variant(
            what="by the statistics of the batch" if other else "by the running statistics",
            change=with_arguments(training=other),
        )


def _whole(bench: Workbench) -> Tried | str:
    session = session_of(bench)
    norms = (
        [m for m in session.module.modules() if isinstance(m, torch.nn.modules.batchnorm._NormBase)]
        if session is not None and hasattr(session.module, "modules")
        else []
    )
    if session is None or not norms:
        return "the module has no layer that behaves otherwise in training"
    training = copy.deepcopy(session.module)
    for layer in training.modules():
        layer.train(isinstance(layer, torch.nn.modules.batchnorm._NormBase))
    try:
        after = bench.scene.error(bench.found, said(session, training, bench.scene.case.inputs))
    except (RuntimeError, ValueError) as why:
        return f"the module does not run in training mode on the witness: {why}"
    mended = bench.edited(_in_inference)
    direct = any(attribute(n, "training_mode") for n in bench.model.graph.node)
    proven = after <= max(bench.limit, 1e-4) and after < bench.before / 5
    if not proven:
        return "in training mode the module gives something else, too"
    return Tried(
        proven=True,
        by_reference=True,
        evidence="the module with its BatchNorm layers in training mode gives what the candidate gives",
        after=after,
        model=mended if direct else None,
        fix=Fix(kind="graph", what="set training_mode to 0 on every BatchNormalization")
        if direct
        else None,
    )


def _in_inference(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        if node.op_type == "BatchNormalization":
            set_attribute(node, "training_mode", 0)
            del node.output[1:]
