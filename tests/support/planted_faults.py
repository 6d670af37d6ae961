"""One fault each in a model of planted_models; a fault is built and verified once a session."""

import contextlib
import functools
import io
import logging
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from support.planted_models import MODELS, Model
from torch import nn

from onnxproof import api
from onnxproof.diagnosis import reverify
from onnxproof.results import Stage
from onnxproof.results.proof import Proof

Change = Callable[[onnx.GraphProto], str]
"""Makes one node guilty and gives its name; several that are as good stand with a bar between them."""
logging.getLogger("torch.onnx").setLevel(logging.ERROR)


def nodes(graph: onnx.GraphProto, *op_types: str) -> list[onnx.NodeProto]:
    return [node for node in graph.node if node.op_type in op_types]


def named(op_type: str, place: int = 0) -> Change:
    """No change: the exporter or the runtime does it by itself."""
    return lambda graph: nodes(graph, op_type)[place].name


def any_of(*op_types: str) -> Change:
    """No change, and nothing that could be named but a node of these kinds: the fault is an absence."""
    return lambda graph: "|".join(node.name for node in nodes(graph, *op_types))


def between(port: str, op_type: str) -> Change:
    """No change, and any node on the way from an input to the first node of a kind will do."""

    def change(graph: onnx.GraphProto) -> str:
        reached, names = {port}, []
        for node in graph.node:
            if reached & set(node.input):
                names.append(node.name)
                reached |= set(node.output)
                if node.op_type == op_type:
                    break
        return "|".join(names)

    return change


def attributes(op_type: str, place: int = 0, **values: Any) -> Change:
    def change(graph: onnx.GraphProto) -> str:
        node = nodes(graph, op_type)[place]
        for name, value in values.items():
            for old in [a for a in node.attribute if a.name == name]:
                node.attribute.remove(old)
            node.attribute.append(helper.make_attribute(name, value))
        return node.name

    return change


def operator(op_type: str, other: str, place: int = 0, *, inputs: int | None = None) -> Change:
    def change(graph: onnx.GraphProto) -> str:
        node = nodes(graph, op_type)[place]
        node.op_type = other
        del node.attribute[:]
        if inputs is not None:
            del node.input[inputs:]
        return node.name

    return change


def exchanged(op_type: str, place: int = 0) -> Change:
    def change(graph: onnx.GraphProto) -> str:
        node = nodes(graph, op_type)[place]
        node.input[0], node.input[1] = node.input[1], node.input[0]
        return node.name

    return change


def constant(op_type: str, slot: int, edit: Callable[[Any], Any], place: int = 0) -> Change:
    """Another value for a weight or constant that one node reads."""

    def change(graph: onnx.GraphProto) -> str:
        node = nodes(graph, op_type)[place]
        known = {t.name: t for t in graph.initializer} | {
            n.output[0]: n.attribute[0].t for n in nodes(graph, "Constant")
        }
        value = numpy_helper.to_array(known[node.input[slot]])
        graph.initializer.append(
            numpy_helper.from_array(
                np.ascontiguousarray(edit(value)).astype(value.dtype), "planted"
            )
        )
        node.input[slot] = "planted"
        return node.name

    return change


def narrowed(op_type: str, to: int, place: int = 0, *, back: int = TensorProto.FLOAT) -> Change:
    """A cast to a narrower type and back, in front of one node."""

    def change(graph: onnx.GraphProto) -> str:
        node = nodes(graph, op_type)[place]
        where = list(graph.node).index(node)
        first = helper.make_node(
            "Cast", [node.input[0]], ["planted_narrow"], name="planted_cast", to=to
        )
        second = helper.make_node(
            "Cast", ["planted_narrow"], ["planted_wide"], name="planted_cast_back", to=back
        )
        node.input[0] = "planted_wide"
        graph.node.insert(where, second)
        graph.node.insert(where, first)
        return first.name

    return change


def skipped(op_type: str, place: int = 0) -> Change:
    """One operand of a sum is lost; what is missing can't be named, but its neighbour can."""

    def change(graph: onnx.GraphProto) -> str:
        node = nodes(graph, op_type)[place]
        node.op_type = "Identity"
        del node.input[1:]
        return "|".join([node.name, *(n.name for n in graph.node if node.output[0] in n.input)])

    return change


def renamed(kind: str, *order: int) -> Change:
    """The names of inputs or outputs stand in another order."""

    def change(graph: onnx.GraphProto) -> str:
        ports = list(getattr(graph, kind))
        names = [port.name for port in ports]
        new = {names[place]: names[order[place]] for place in range(len(order))}
        for node in graph.node:
            for slots in (node.input, node.output):
                for place, name in enumerate(slots):
                    slots[place] = new.get(name, name)
        return ""

    return change


@dataclass(frozen=True, kw_only=True)
class Fault:
    model: str
    change: Change
    stage: Stage
    cause: str
    exporter: str = "dynamo"
    exported: str = ""
    """The model that was exported in the place of `model`, where the fault lies in the module's code."""
    fixed: bool = False
    """Whether a remedy must be offered."""


def fault(model: str, change: Change, stage: Stage, cause: str, **options: Any) -> Fault:
    return Fault(model=model, change=change, stage=stage, cause=cause, **options)


FAULTS: dict[str, Fault] = {
    "conv-batchnorm-epsilon": fault(
        "conv",
        attributes("BatchNormalization", epsilon=1e-2),
        Stage.EXPORT,
        "attribute",
        fixed=True,
    ),
    "conv-leaky-slope": fault(
        "conv", attributes("LeakyRelu", alpha=0.01), Stage.EXPORT, "attribute", fixed=True
    ),
    "encoder-layernorm-epsilon": fault(
        "encoder",
        attributes("LayerNormalization", 1, epsilon=1e-3),
        Stage.EXPORT,
        "attribute",
        fixed=True,
    ),
    "encoder-gelu-form": fault(
        "encoder", attributes("Gelu", approximate="tanh"), Stage.EXPORT, "attribute", fixed=True
    ),
    "conv-kernel-of-other-checkpoint": fault(
        "conv",
        constant("Conv", 1, lambda w: w + 0.1 * np.sin(np.arange(w.size)).reshape(w.shape), 1),
        Stage.EXPORT,
        "weights",
        fixed=True,
    ),
    "mlp-bias-dropped": fault(
        "mlp", constant("Gemm", 2, np.zeros_like, 1), Stage.EXPORT, "weights", fixed=True
    ),
    "mlp-weight-transposed": fault(
        "mlp", constant("Gemm", 1, np.transpose, 1), Stage.EXPORT, "weight-layout", fixed=True
    ),
    "conv-kernel-flipped": fault(
        "conv",
        constant("Conv", 1, lambda w: w[..., ::-1], 1),
        Stage.EXPORT,
        "weight-layout",
        fixed=True,
    ),
    "mlp-relu6-to-relu": fault(
        "mlp", operator("Clip", "Relu", inputs=1), Stage.EXPORT, "clipping", fixed=True
    ),
    "conv-hardtanh-moved": fault(
        "conv", constant("Clip", 2, lambda w: w + 0.2), Stage.EXPORT, "clipping", fixed=True
    ),
    "limits-age-exclusive": fault(
        "limits", operator("GreaterOrEqual", "Greater"), Stage.EXPORT, "comparison", fixed=True
    ),
    "lengths-inclusive": fault(
        "lengths", operator("Less", "LessOrEqual"), Stage.EXPORT, "comparison", fixed=True
    ),
    "limits-floor": fault(
        "limits", operator("Round", "Floor"), Stage.EXPORT, "rounding", fixed=True
    ),
    "limits-ceil": fault("limits", operator("Round", "Ceil"), Stage.EXPORT, "rounding", fixed=True),
    "folded-untransposed": fault(
        "folded", attributes("Transpose", perm=[0, 1, 2]), Stage.EXPORT, "axis-order", fixed=True
    ),
    "limits-operands": fault("limits", exchanged("Sub"), Stage.EXPORT, "axis-order", fixed=True),
    "mlp-residual-lost": fault("mlp", skipped("Add"), Stage.EXPORT, "missing-op"),
    "alias-write-lost": fault(
        "alias", lambda graph: graph.node[-1].name, Stage.EXPORT, "mutation", exporter="legacy"
    ),
    "sums-length-baked": fault(
        "sums",
        named("Div"),
        Stage.EXPORT,
        "baked-dimension",
        exporter="legacy",
        exported="sums-traced",
    ),
    "flat-length-baked": fault(
        "flat",
        named("Add", -1),
        Stage.EXPORT,
        "baked-dimension",
        exporter="legacy",
        exported="flat-traced",
    ),
    "peak-baked": fault(
        "peak", named("Div"), Stage.EXPORT, "baked-value", exporter="legacy", exported="peak-traced"
    ),
    "mean-baked": fault(
        "normed",
        named("Sub"),
        Stage.EXPORT,
        "baked-value",
        exporter="legacy",
        exported="normed-traced",
    ),
    "conv-train-mode": fault(
        "conv",
        named("BatchNormalization"),
        Stage.EXPORT,
        "train-mode",
        exporter="training-frozen",
        fixed=True,
    ),
    "conv-train-mode-moved": fault(
        "conv", named("BatchNormalization"), Stage.EXPORT, "train-mode", exporter="training"
    ),
    "encoder-mask-ignored": fault(
        "encoder", between("mask", "Softmax"), Stage.EXPORT, "masking", exported="unmasked"
    ),
    "encoder-mask-inverted": fault(
        "encoder", between("mask", "Softmax"), Stage.EXPORT, "masking", exported="inverted"
    ),
    "hashed-in-int32": fault(
        "hashed",
        narrowed("Mod", TensorProto.INT32, back=TensorProto.INT64),
        Stage.EXPORT,
        "integer-width",
        fixed=True,
    ),
    "times-in-int32": fault(
        "times",
        narrowed("Div", TensorProto.INT32, back=TensorProto.INT64),
        Stage.EXPORT,
        "integer-width",
        fixed=True,
    ),
    "conv-in-half": fault(
        "conv", narrowed("Conv", TensorProto.FLOAT16, 1), Stage.PRECISION, "precision", fixed=True
    ),
    "encoder-in-bfloat16": fault(
        "encoder",
        narrowed("Softmax", TensorProto.BFLOAT16),
        Stage.PRECISION,
        "precision",
        fixed=True,
    ),
    "mlp-in-half": fault(
        "mlp", narrowed("Gemm", TensorProto.FLOAT16, 2), Stage.PRECISION, "precision", fixed=True
    ),
    "towers-inputs-exchanged": fault(
        "towers", renamed("input", 1, 0), Stage.SIGNATURE, "input-order"
    ),
    "three-inputs-rotated": fault(
        "three", renamed("input", 1, 2, 0), Stage.SIGNATURE, "input-order"
    ),
    "span-outputs-exchanged": fault(
        "span", renamed("output", 1, 0), Stage.SIGNATURE, "output-order"
    ),
    "double-quantization-merged": fault(
        "double-quantized",
        any_of("QuantizeLinear", "DequantizeLinear"),
        Stage.OPTIMIZER,
        "optimizer",
        exporter="legacy",
        fixed=True,
    ),
    "quantized-pool-fused": fault(
        "quantized-pool",
        any_of("AveragePool", "QuantizeLinear", "DequantizeLinear"),
        Stage.OPTIMIZER,
        "optimizer",
        exporter="legacy",
        fixed=True,
    ),
    "batch-statistics-shared": fault(
        "batch-statistics",
        named("BatchNormalization"),
        Stage.OPTIMIZER,
        "optimizer",
        exporter="legacy",
        fixed=True,
    ),
    "scattered-last-wins": fault(
        "scattered",
        attributes("ScatterElements", reduction="none"),
        Stage.EXPORT,
        "scatter",
        fixed=True,
    ),
    "scattered-largest-wins": fault(
        "scattered",
        attributes("ScatterElements", reduction="max"),
        Stage.EXPORT,
        "scatter",
        fixed=True,
    ),
    "integer-sum-in-double": fault("integer-sum", named("ReduceSum"), Stage.RUNTIME, "kernel"),
    "integer-remainder-in-double": fault(
        "integer-remainder", named("Mod"), Stage.RUNTIME, "kernel"
    ),
    "image-resize-truncates": fault("image", named("Resize"), Stage.RUNTIME, "kernel"),
    "far-group-norm": fault("far-group-norm", named("GroupNormalization"), Stage.RUNTIME, "kernel"),
    "pool-hides-nan": fault("pooled", named("MaxPool"), Stage.RUNTIME, "nan-handling"),
    "choice-takes-last": fault(
        "choice", attributes("ArgMax", select_last_index=1), Stage.EXPORT, "tie-order"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Examined:
    proof: Proof
    guilty: str
    path: Path
    model: Model


BUDGET_S = 60.0
_FOLDER = tempfile.TemporaryDirectory(prefix="onnxproof-tests-")


@functools.cache
def model(name: str) -> Model:
    return MODELS[name]()


@functools.cache
def exported(name: str, exporter: str) -> Path:
    """One export a model and exporter."""
    found, path = MODELS[name](), Path(_FOLDER.name) / f"{name}-{exporter}.onnx"
    quiet = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(quiet),
        contextlib.redirect_stderr(quiet),
        torch.no_grad(),
    ):
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            torch.onnx.export(
                found.module,
                found.example,
                path,
                dynamo=True,
                dynamic_shapes=found.shapes,
                opset_version=21,
                external_data=False,
                verbose=False,
            )
            return path
        names = [f"in{k}" for k in range(len(found.example))]
        axes = dict(zip(names, found.shapes or (), strict=False))
        mode = (
            {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
            if exporter.startswith("training")
            else {}
        )
        for layer in found.module.modules():
            if isinstance(layer, nn.BatchNorm2d) and exporter == "training-frozen":
                layer.momentum = (
                    0.0  # tracing in training mode moves the statistics; this keeps them
                )
        torch.onnx.export(
            found.module,
            found.example,
            str(path),
            dynamo=False,
            dynamic_axes=axes,
            input_names=names,
            opset_version=17,
            **mode,
        )
    return path


@functools.cache
def examine(name: str) -> Examined:
    """The proof of one planted fault, explained."""
    planted = FAULTS[name]
    loaded = onnx.load(exported(planted.exported or planted.model, planted.exporter))
    guilty = planted.change(loaded.graph)
    del loaded.graph.value_info[:]
    path = Path(_FOLDER.name) / f"{name}.onnx"
    onnx.save(loaded, path)
    right = model(planted.model)
    with mock.patch.object(reverify, "MOST_S", 20.0):
        proof = api.verify(
            right.module, path, right.example, dynamic_shapes=right.shapes, budget_s=BUDGET_S
        )
    return Examined(proof=proof, guilty=guilty, path=path, model=right)


def told(proof: Proof) -> str:
    """Everything that a failing test should show."""
    where = proof.location
    return (
        f"{proof.sentence()}; {where.stage.value if where else None} {where.nodes[:4] if where else None} {where.evidence if where else ''}; "
        + "; ".join(f"{c.code} {c.proven} {c.evidence}" for c in proof.causes)
        + "; ".join(f.what for f in proof.findings)
    )


def planted(bugs: dict[str, str]) -> list[Any]:
    """Every fault; those that the engine gets wrong for a known reason are expected to fail."""
    return [
        pytest.param(
            name, marks=[pytest.mark.xfail(strict=True, reason=bugs[name])] if name in bugs else []
        )
        for name in FAULTS
    ]
