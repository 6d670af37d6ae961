"""What half precision would cost, simulated on the float32 graph: weights and results are rounded, the arithmetic stays.

fp16: every weight and every result is rounded. The converted file itself would not show it, since ONNX Runtime computes it in
float32 on a CPU and hides an overflow that a GPU shows. bf16: only weights are rounded, since the file keeps nothing else in bfloat16.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from onnxproof.runtimes import ort

Array = np.ndarray[Any, Any]
Inputs = Sequence[Mapping[str, Array]]
"""The inputs of several cases by name."""
Outputs = Sequence[Sequence[Array]]
"""The outputs of several cases."""
ROUNDING = {"fp16": 2.0**-11, "bf16": 2.0**-9}
"""The relative error of one rounding."""
_MIN_BF16_WEIGHT = 16
"""Elements below which a weight stays in float32: a cast costs more than it saves. Not measured."""
_TYPES: dict[str, Any] = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
_MAX_AMPLIFICATION = 4.0
"""How many times the error of its inputs a node may have before it is tried in float32. Not measured."""
_VALUES_PER_RUN = 48
"""Values that are compared in one run: they are all in memory. Not measured."""
_SILENT = 1e-12
"""Share of the loudest case's energy below which the ratio of an output says nothing. Not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfSimulation:
    """A float32 graph, the inputs of the cases it is simulated on, and its own outputs."""

    model: onnx.ModelProto
    kind: str
    inputs: Inputs
    reference: Outputs = field(default_factory=list)
    float_values: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        model: onnx.ModelProto,
        kind: str,
        inputs: Inputs,
    ) -> "HalfSimulation":
        """Run the float32 graph itself."""
        inferred = onnx.shape_inference.infer_shapes(model).graph
        float_values = {
            value.name
            for value in (*inferred.value_info, *model.graph.output)
            if value.type.tensor_type.elem_type == TensorProto.FLOAT
        }
        return cls(
            model=model,
            kind=kind,
            inputs=inputs,
            reference=run_graph(model, inputs),
            float_values=frozenset(float_values),
        )

    def measure_db(self, kept: Sequence[str]) -> float:
        """Decibels of the worst output of the worst case with these nodes in float32."""
        return worst_db(self.reference, run_graph(self.round_graph(kept), self.inputs))

    def sensitive_nodes(self, kept: Sequence[str]) -> list[tuple[float, str]]:
        """Nodes whose error is much larger than that of their inputs, with how many times, the worst first."""
        errors = self._relative_errors(self.round_graph(kept))
        rated = []
        for node in self.model.graph.node:
            output_error = max((errors.get(name, 0.0) for name in node.output), default=0.0)
            input_errors = [errors.get(name, 0.0) for name in node.input]
            input_error = max([ROUNDING[self.kind], *input_errors])
            if not node.name or not np.isfinite(input_error):
                continue
            if output_error > _MAX_AMPLIFICATION * input_error:
                rated.append((output_error / input_error, node.name))
        return sorted(rated, reverse=True)

    def round_graph(self, kept: Sequence[str]) -> onnx.ModelProto:
        """The graph with the weights, and in fp16 the results, of the other nodes rounded."""
        model = copy_model(self.model)
        spared = inputs_of(model, kept)
        for tensor in convertible_weights(model, self.kind):
            if tensor.name in spared:
                continue
            values = numpy_helper.to_array(tensor)
            with np.errstate(over="ignore"):
                rounded = values.astype(_TYPES[self.kind]).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(rounded, tensor.name))
        if self.kind == "bf16":
            return model
        return _round_results(model, self.float_values, kept)

    def _relative_errors(self, half: onnx.ModelProto) -> dict[str, float]:
        """The largest relative error of each value over the cases."""
        errors: dict[str, float] = {}
        values = [name for node in self.model.graph.node for name in node.output]
        names = [name for name in values if name in self.float_values]
        for start in range(0, len(names), _VALUES_PER_RUN):
            some = names[start : start + _VALUES_PER_RUN]
            singles = run_graph(self.model, self.inputs, some)
            halves = run_graph(half, self.inputs, some)
            for single_values, half_values in zip(singles, halves, strict=True):
                for name, single, rounded in zip(some, single_values, half_values, strict=True):
                    error = _relative_error(single.astype(np.float64), rounded.astype(np.float64))
                    errors[name] = max(errors.get(name, 0.0), error)
        return errors


def inputs_of(model: onnx.ModelProto, nodes: Sequence[str]) -> set[str]:
    """Everything that these nodes consume: the weights among it stay as they are."""
    wanted = set(nodes)
    return {name for node in model.graph.node if node.name in wanted for name in node.input}


def _outputs_of(model: onnx.ModelProto, nodes: Sequence[str]) -> set[str]:
    wanted = set(nodes)
    return {name for node in model.graph.node if node.name in wanted for name in node.output}


def _round_results(
    model: onnx.ModelProto,
    float_values: frozenset[str],
    kept: Sequence[str],
) -> onnx.ModelProto:
    """Every result in half precision; that of a kept node stays as it is, and is rounded where a node in half precision consumes it."""
    kept_values = _outputs_of(model, kept) & float_values
    nodes: list[onnx.NodeProto] = []
    rounded: set[str] = set()
    for node in model.graph.node:
        if node.name in kept:
            nodes.append(node)
            continue
        for place, name in enumerate(node.input):
            if name not in kept_values:
                continue
            if name not in rounded:
                nodes += _rounding_casts(name, f"{name}::read")
                rounded.add(name)
            node.input[place] = f"{name}::read"
        nodes.append(node)
        for place, name in enumerate(node.output):
            if name in float_values:
                node.output[place] = f"{name}::single"
                nodes += _rounding_casts(f"{name}::single", name)
    return replace_nodes(model, nodes)


def _rounding_casts(name: str, rounded: str) -> list[onnx.NodeProto]:
    """To half precision and back."""
    half = f"{rounded}::half"
    return [
        onnx.helper.make_node("Cast", [name], [half], to=TensorProto.FLOAT16),
        onnx.helper.make_node("Cast", [half], [rounded], to=TensorProto.FLOAT),
    ]


def replace_nodes(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    """The same model with these nodes, some of which may be its own."""
    copies = []
    for node in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copies.append(copy)
    del model.graph.node[:]
    model.graph.node.extend(copies)
    return model


def run_graph(
    model: onnx.ModelProto,
    inputs: Inputs,
    names: Sequence[str] = (),
) -> list[list[Array]]:
    """The outputs of each case, or those values inside; without optimisation, since a fusion removes values."""
    import onnxruntime

    if names:
        model = copy_model(model)
        outputs = {port.name for port in model.graph.output}
        added = [onnx.ValueInfoProto(name=name) for name in names if name not in outputs]
        model.graph.output.extend(added)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.native(model.SerializeToString(), options)
    results = []
    for case in inputs:
        values = session.run(list(names) or None, dict(case))
        results.append([np.asarray(value) for value in values])
    return results


def copy_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that can be changed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def worst_db(reference: Outputs, candidate: Outputs) -> float:
    """Signal against error of the worst output of the worst case; minus infinity if a finite value is not finite any more."""
    levels = [float("inf")]
    for place in range(len(reference[0])):
        energies = [
            _energies(want[place], got[place])
            for want, got in zip(reference, candidate, strict=True)
        ]
        loudest = max(signal for signal, _ in energies)
        for signal, error in energies:
            if signal > _SILENT * loudest or not np.isfinite(error):
                levels.append(_decibels(signal, error))
    return min(levels)


def _energies(want: Array, got: Array) -> tuple[float, float]:
    """Mean squares of the signal and of its error where the signal is finite; of integers, the share that differs."""
    if want.dtype.kind != "f":
        if not want.size:
            return 1.0, 0.0
        return 1.0, float(np.mean(want != got))
    finite = np.isfinite(want)
    if not finite.any():
        return 0.0, 0.0
    a = want.astype(np.float64)[finite]
    b = got.astype(np.float64)[finite]
    signal = float(np.mean(a**2))
    if not np.isfinite(b).all():
        return signal, float("inf")
    return signal, float(np.mean((a - b) ** 2))


def _decibels(signal: float, error: float) -> float:
    if error == 0:
        return float("inf")
    if not np.isfinite(error) or signal <= 0:
        return float("-inf")
    return float(10 * np.log10(signal / error))


def _relative_error(single: Array, rounded: Array) -> float:
    """Root mean square of the error in that of the value; infinite for an overflow."""
    finite = np.isfinite(single)
    if not np.isfinite(rounded[finite]).all():
        return float("inf")
    if not finite.any():
        return 0.0
    size = float(np.sqrt(np.mean(single[finite] ** 2)))
    if not size:
        return 0.0
    return float(np.sqrt(np.mean((single - rounded)[finite] ** 2))) / size


def convertible_weights(model: onnx.ModelProto, kind: str) -> list[onnx.TensorProto]:
    """The weights that are kept in half precision: all of them in fp16, those that are worth a cast in bf16."""
    floats = [t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT]
    if kind == "fp16":
        return floats
    return [tensor for tensor in floats if int(np.prod(tensor.dims)) >= _MIN_BF16_WEIGHT]
