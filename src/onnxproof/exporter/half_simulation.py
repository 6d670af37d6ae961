"""What half precision would cost, simulated on the float32 graph: weights and results are rounded, the arithmetic stays.

fp16: every weight and every result is rounded. The converted file itself would tell nothing here, since ONNX Runtime computes it
in float32 on a CPU and hides an overflow that a GPU shows. bf16: only weights are rounded, since they are all that the file keeps in bfloat16.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

Array = np.ndarray[Any, Any]
Feeds = Sequence[Mapping[str, Array]]
EPSILON = {"fp16": 2.0**-11, "bf16": 2.0**-9}
"""The relative error of one rounding."""
_SMALL = 16
"""Weights with fewer elements stay as they are in bf16: a cast costs more than they do."""
_TYPES: dict[str, Any] = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
_AMPLIFIES = 4.0
"""How many times its inputs' error a node may add before it is tried in float32."""
_AT_ONCE = 48
"""Values that are compared in one run: their memory is what it costs."""
_SILENT = 1e-12
"""An output with less of the largest case's energy says nothing by its ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halving:
    """A float32 graph, the inputs it is tried on, and its own answers."""

    model: onnx.ModelProto
    kind: str
    feeds: Feeds
    wanted: Sequence[Sequence[Array]] = field(default_factory=list)
    floats: frozenset[str] = frozenset()

    @classmethod
    def of(cls, model: onnx.ModelProto, kind: str, feeds: Feeds) -> "Halving":
        """Measure the float32 graph itself."""
        inferred = onnx.shape_inference.infer_shapes(model).graph
        floats = {
            value.name
            for value in (*inferred.value_info, *model.graph.output)
            if value.type.tensor_type.elem_type == TensorProto.FLOAT
        }
        return cls(
            model=model, kind=kind, feeds=feeds, wanted=run(model, feeds), floats=frozenset(floats)
        )

    def reached(self, kept: Sequence[str]) -> float:
        """Decibels of the worst output of the worst case with these nodes in float32."""
        return worst_db(self.wanted, run(self.rounded(kept), self.feeds))

    def sensitive(self, kept: Sequence[str]) -> list[tuple[float, str]]:
        """Nodes whose result is much further off than their inputs, with how many times, the worst first."""
        error = self._errors(self.rounded(kept))
        rated = []
        for node in self.model.graph.node:
            out = max((error[name] for name in node.output if name in error), default=0.0)
            into = max([EPSILON[self.kind], *(error[name] for name in node.input if name in error)])
            if node.name and np.isfinite(into) and out > _AMPLIFIES * into:
                rated.append((out / into, node.name))
        return sorted(rated, reverse=True)

    def rounded(self, kept: Sequence[str]) -> onnx.ModelProto:
        """The graph with the weights, and in fp16 the results, of the other nodes rounded."""
        made = copied(self.model)
        spared = weights_of(made, kept)
        for tensor in narrowed(made, self.kind):
            if tensor.name not in spared:
                with np.errstate(over="ignore"):
                    tensor.CopyFrom(
                        numpy_helper.from_array(
                            numpy_helper.to_array(tensor)
                            .astype(_TYPES[self.kind])
                            .astype(np.float32),
                            tensor.name,
                        )
                    )
        return made if self.kind == "bf16" else _with_rounded_results(made, self.floats, kept)

    def _errors(self, half: onnx.ModelProto) -> dict[str, float]:
        """The largest relative error of each value over the cases."""
        error: dict[str, float] = {}
        names = [
            name for node in self.model.graph.node for name in node.output if name in self.floats
        ]
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            for singles, halves in zip(
                run(self.model, self.feeds, some), run(half, self.feeds, some), strict=True
            ):
                for name, a, b in zip(some, singles, halves, strict=True):
                    error[name] = max(
                        error.get(name, 0.0), _relative(a.astype(np.float64), b.astype(np.float64))
                    )
        return error


def weights_of(model: onnx.ModelProto, nodes: Sequence[str]) -> set[str]:
    """Everything that these nodes read: the weights among it stay as they are."""
    wanted = set(nodes)
    return {name for node in model.graph.node if node.name in wanted for name in node.input}


def _with_rounded_results(
    model: onnx.ModelProto, floats: frozenset[str], kept: Sequence[str]
) -> onnx.ModelProto:
    """Every result in half precision; that of a kept node stays as it is, and is rounded where a node in half precision reads it."""
    wide = {
        name
        for node in model.graph.node
        if node.name in kept
        for name in node.output
        if name in floats
    }
    nodes: list[onnx.NodeProto] = []
    read: set[str] = set()
    for node in model.graph.node:
        if node.name in kept:
            nodes.append(node)
            continue
        for place, name in enumerate(node.input):
            if name in wide:
                nodes += _rounding(name, f"{name}::read") if name not in read else []
                read.add(name)
                node.input[place] = f"{name}::read"
        nodes.append(node)
        for place, name in enumerate(node.output):
            if name in floats:
                node.output[place] = f"{name}::single"
                nodes += _rounding(f"{name}::single", name)
    return with_nodes(model, nodes)


def _rounding(name: str, rounded: str) -> list[onnx.NodeProto]:
    """To half precision and back."""
    there = onnx.helper.make_node("Cast", [name], [f"{rounded}::half"], to=TensorProto.FLOAT16)
    return [
        there,
        onnx.helper.make_node("Cast", [f"{rounded}::half"], [rounded], to=TensorProto.FLOAT),
    ]


def with_nodes(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    """The same model with these nodes, some of which may be its own."""
    ready = []
    for node in nodes:
        ready.append(onnx.NodeProto())
        ready[-1].CopyFrom(node)
    del model.graph.node[:]
    model.graph.node.extend(ready)
    return model


def run(model: onnx.ModelProto, feeds: Feeds, names: Sequence[str] = ()) -> list[list[Array]]:
    """The outputs of each case, or those values inside; without fusions, since they would swallow some."""
    import onnxruntime

    shown = copied(model) if names else model
    there = {port.name for port in shown.graph.output}
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in there)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        shown.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [
        [np.asarray(value) for value in session.run(list(names) or None, dict(feed))]
        for feed in feeds
    ]


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model of its own."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    return made


def worst_db(wanted: Sequence[Sequence[Array]], found: Sequence[Sequence[Array]]) -> float:
    """Signal against error of the worst output of the worst case; minus infinity where a finite value is none any more."""
    levels = [float("inf")]
    for place in range(len(wanted[0])):
        mine = [_energies(want[place], got[place]) for want, got in zip(wanted, found, strict=True)]
        loudest = max(signal for signal, _ in mine)
        levels += [
            _db(signal, error)
            for signal, error in mine
            if signal > _SILENT * loudest or not np.isfinite(error)
        ]
    return min(levels)


def _energies(want: Array, got: Array) -> tuple[float, float]:
    """Mean squares of the signal and of its error where the signal is finite; decisions are right or wrong."""
    if want.dtype.kind != "f":
        return 1.0, float(np.mean(want != got)) if want.size else 0.0
    a, b = want.astype(np.float64), got.astype(np.float64)
    keep = np.isfinite(a)
    if not keep.any():
        return 0.0, 0.0
    return float(np.mean(a[keep] ** 2)), float(np.mean((a - b)[keep] ** 2)) if np.isfinite(
        b[keep]
    ).all() else float("inf")


def _db(signal: float, error: float) -> float:
    if error == 0:
        return float("inf")
    return (
        float(10 * np.log10(signal / error)) if np.isfinite(error) and signal > 0 else float("-inf")
    )


def _relative(a: Array, b: Array) -> float:
    if not np.isfinite(b[np.isfinite(a)]).all():
        return float("inf")
    keep = np.isfinite(a)
    size = float(np.sqrt(np.mean(a[keep] ** 2))) if keep.any() else 0.0
    return float(np.sqrt(np.mean((a - b)[keep] ** 2))) / size if size else 0.0


def narrowed(model: onnx.ModelProto, kind: str) -> list[onnx.TensorProto]:
    """The weights that half precision is for: all of them in fp16, those that are worth a cast in bf16."""
    return [
        tensor
        for tensor in model.graph.initializer
        if tensor.data_type == TensorProto.FLOAT
        and (kind == "fp16" or int(np.prod(tensor.dims)) >= _SMALL)
    ]
