"""The file was made in training mode.

What it is: BatchNorm normalises by the statistics of the batch at hand instead of the learned ones, or Dropout drops.

Why it happens: `model.eval()` was forgotten, or the exporter was asked to keep the training mode.

How to see it: the module in training mode gives what the candidate gives; one row's answer depends on its neighbours.

How to fix it: call `model.eval()` before the export; `onnxproof export` always does.

Example: a classifier that is right on large batches and useless on single images.
"""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import onnx
import torch

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals.changed_reference import Variant, with_arguments
from onnxproof.diagnosis.counterfactuals.module_run import module_session, run_module
from onnxproof.diagnosis.counterfactuals.workbench import (
    Tried,
    Workbench,
    attribute_value,
    set_attribute,
)
from onnxproof.diagnosis.judge import Counterfactual
from onnxproof.diagnosis.trial_cases import TrialCase
from onnxproof.reference.traced_value import TracedValue
from onnxproof.results import Fix

TITLE = "the file was made in training mode"
PRICE = 10


def test(workbench: Workbench) -> Tried | str:
    """Put the reference, or one of its normalisations, into the other mode and see whether it gives what the candidate gives."""
    return _try_whole_module(workbench) or workbench.try_in_reference(_variants)


def _variants(entry: TracedValue) -> Iterator[Variant]:
    if "batch_norm" not in entry.op or "training" not in entry.arguments:
        return
    if entry.arguments["training"]:
        yield Variant(what="by the running statistics", change=with_arguments(training=False))
    else:
        yield Variant(what="by the statistics of the batch", change=with_arguments(training=True))


def _try_whole_module(workbench: Workbench) -> Tried | None:
    """A copy of the module with all of its BatchNorm layers in training mode."""
    session = module_session(workbench)
    if session is None or not _has_batch_norm(session.module):
        return None
    training = copy.deepcopy(session.module)
    for layer in training.modules():
        layer.train(_is_batch_norm(layer))

    def error(case: TrialCase) -> float | None:
        try:
            outputs = run_module(session, copy.deepcopy(training), case.inputs)
        except (RuntimeError, ValueError):  # one value for each channel has no variance
            return None
        left = case.scene.error(case.outputs, outputs)
        return max(0.0, left - limits.TRAIN_MODE_LEAST_ERROR)

    tried = workbench.try_counterfactual(
        Counterfactual(error=error, in_reference=True),
        "the module with its BatchNorm layers in training mode gives what the candidate gives",
    )
    if tried is None:
        return None
    if not any(attribute_value(node, "training_mode") for node in workbench.model.graph.node):
        return tried
    return replace(
        tried,
        model=workbench.with_graph(_set_inference_mode),
        fix=Fix(kind="graph", what="set training_mode to 0 on every BatchNormalization"),
    )


def _has_batch_norm(module: Any) -> bool:
    if not hasattr(module, "modules"):
        return False
    return any(_is_batch_norm(layer) for layer in module.modules())


def _is_batch_norm(layer: Any) -> bool:
    return isinstance(layer, torch.nn.modules.batchnorm._NormBase)


def _set_inference_mode(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        if node.op_type == "BatchNormalization":
            set_attribute(node, "training_mode", 0)
            del node.output[1:]
