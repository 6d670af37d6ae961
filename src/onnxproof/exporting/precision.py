"""Half precision, with the nodes that can't bear it left in float32: found by comparing every value of the two graphs.

fp16 is converted by ONNX Runtime's own tool. A node is sensitive when its result is much further off than what went into
it, or overflows. The most sensitive are given back to float32, round by round, as long as the outputs gain.
Half precision is simulated for that: the float32 graph with every result rounded. The converted file itself would tell
nothing here, since ONNX Runtime computes it in float32 on a CPU and hides an overflow that a GPU shows.

bf16 keeps the weights in bfloat16 and computes in float32: ONNX Runtime's CPU provider has no bfloat16 kernels for most
operators, and a file that nobody here can open can't be proven.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from onnxproof.errors import UsageError

Array = np.ndarray[Any, Any]
KINDS = ("fp16", "bf16")
_EPSILON = 2.0 ** -11
_AMPLIFIES = 4.0
"""How many times its inputs' error a node may add before it is tried in float32."""
_ENOUGH_DB, _GAIN_DB = 60.0, 1.0
_AT_ONCE = 48
"""Values that are compared in one run: their memory is what it costs."""
_SMALL = 16
_ROUNDS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """What became of it."""

    kept: tuple[str, ...]
    """Nodes that stay in float32, the most sensitive first."""
    before_db: float
    """Output signal against error with every node in half precision."""
    after_db: float

    def words(self, kind: str) -> str:
        """For the record."""
        if kind == "bf16":
            return f"bf16 weights, float32 arithmetic ({self.after_db:.0f} dB)"
        kept = f"; kept in float32 (from {_db(self.before_db)}): {', '.join(self.kept[:6])}{' ...' if len(self.kept) > 6 else ''}" if self.kept else ""
        return f"{kind} ({_db(self.after_db)}){kept}"


def check(kind: str | None) -> None:
    """Refuse what is not known before anything is exported."""
    if kind is not None and kind not in KINDS:
        raise UsageError("unknown-precision", f"`--precision {kind}` is not known", help=f"say one of {', '.join(KINDS)}")


def lower(path: Path, kind: str, feeds: Sequence[Mapping[str, Array]]) -> Lowered:
    """Rewrite a float32 file in half precision, in place."""
    model = onnx.load(path)
    wanted = [_run(model, feed) for feed in feeds]
    if kind == "bf16":
        stored = _stored_in_bf16(model)
        reached = _worst_db(stored, feeds, wanted)
        onnx.save(stored, path)
        return Lowered(kept=(), before_db=reached, after_db=reached)
    types = {value.name for value in _inferred(model).graph.value_info if value.type.tensor_type.elem_type == TensorProto.FLOAT}
    types |= {port.name for port in model.graph.output if port.type.tensor_type.elem_type == TensorProto.FLOAT}

    def measure(kept: Sequence[str]) -> float:
        return _worst_db(_rounded(model, types, kept), feeds, wanted)

    before = measure(())
    best, after = _search(measure, lambda kept: _sensitive(model, _rounded(model, types, kept), types, feeds), before)
    onnx.save(_converted(model, best), path)
    return Lowered(kept=best, before_db=before, after_db=after)


def _search(measure: Callable[[Sequence[str]], float], sensitive: Callable[[Sequence[str]], list[tuple[float, str]]],
            start: float) -> tuple[tuple[str, ...], float]:
    """Keep more and more nodes: all that overflow, else the worst few, and look again, since one overflow hides the next."""
    kept: list[str] = []
    best: tuple[str, ...] = ()
    reached = start
    for _ in range(_ROUNDS):
        found = [(rating, name) for rating, name in sensitive(kept) if name not in kept] if reached < _ENOUGH_DB else []
        if not found:
            break
        kept += [name for rating, name in found if np.isinf(rating)] or [name for _, name in found[:max(1, len(kept))]]
        value = measure(kept)
        if value > reached + _GAIN_DB:
            best, reached = tuple(kept), value
    return best, reached


def _converted(model: onnx.ModelProto, kept: Sequence[str]) -> onnx.ModelProto:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    made: onnx.ModelProto = convert_float_to_float16(_copy(model), keep_io_types=True, node_block_list=list(kept))
    once = {tuple(node.output): node for node in reversed(made.graph.node)}  # an input used twice (x * x) is cast twice under one name, which no runtime opens
    nodes = [_copy_node(node) for node in reversed(once.values())]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


def _rounded(model: onnx.ModelProto, floats: set[str], kept: Sequence[str]) -> onnx.ModelProto:
    """The float32 graph with every weight and every result of the other nodes rounded to half precision."""
    made = _copy(model)
    for tensor in made.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            with np.errstate(over="ignore"):
                tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16).astype(np.float32), tensor.name))
    nodes = []
    for node in made.graph.node:
        nodes.append(node)
        for place, name in enumerate(node.output):
            if name in floats and node.name not in kept:
                node.output[place] = f"{name}::single"
                nodes.append(onnx.helper.make_node("Cast", [f"{name}::single"], [f"{name}::half"], to=TensorProto.FLOAT16))
                nodes.append(onnx.helper.make_node("Cast", [f"{name}::half"], [name], to=TensorProto.FLOAT))
    ready = [_copy_node(node) for node in nodes]
    del made.graph.node[:]
    made.graph.node.extend(ready)
    return made


def _sensitive(single: onnx.ModelProto, half: onnx.ModelProto, floats: set[str], feeds: Sequence[Mapping[str, Array]]) -> list[tuple[float, str]]:
    """Nodes whose result is much further off than their inputs, with how many times, the worst first."""
    error: dict[str, float] = {}
    names = [name for node in single.graph.node for name in node.output if name in floats]
    for start in range(0, len(names), _AT_ONCE):
        for name, value in _errors(single, half, names[start:start + _AT_ONCE], feeds):
            error[name] = max(error.get(name, 0.0), value)
    rated = []
    for node in single.graph.node:
        out = max((error[name] for name in node.output if name in error), default=0.0)
        into = max([_EPSILON, *(error[name] for name in node.input if name in error)])
        if np.isfinite(into) and out > _AMPLIFIES * into:
            rated.append((out / into, node.name))
    return sorted((item for item in rated if item[1]), reverse=True)


def _errors(single: onnx.ModelProto, half: onnx.ModelProto, names: Sequence[str], feeds: Sequence[Mapping[str, Array]]) -> Iterator[tuple[str, float]]:
    for feed in feeds:
        for name, a, b in zip(names, _run(single, feed, names), _run(half, feed, names), strict=True):
            yield name, _relative(a.astype(np.float64), b.astype(np.float64))


def _relative(a: Array, b: Array) -> float:
    if not np.isfinite(b[np.isfinite(a)]).all():
        return float("inf")
    size = float(np.sqrt(np.mean(a ** 2))) if a.size else 0.0
    return float(np.sqrt(np.mean((a - b) ** 2))) / size if size else 0.0


def _run(model: onnx.ModelProto, feed: Mapping[str, Array], names: Sequence[str] = ()) -> list[Array]:
    """The outputs, or those values inside; without fusions, since they would swallow some."""
    import onnxruntime

    shown = _copy(model) if names else model
    there = {port.name for port in shown.graph.output}
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in there)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(list(names) or None, dict(feed))]


def _worst_db(model: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]], wanted: Sequence[Sequence[Array]]) -> float:
    return min(_signal_db(want, got) for feed, outputs in zip(feeds, wanted, strict=True) for want, got in zip(outputs, _run(model, feed), strict=True))


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    return onnx.shape_inference.infer_shapes(model)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    return made


def _copy_node(node: onnx.NodeProto) -> onnx.NodeProto:
    made = onnx.NodeProto()
    made.CopyFrom(node)
    return made


def _signal_db(want: Array, got: Array) -> float:
    if want.dtype.kind != "f":
        return float("inf") if np.array_equal(want, got) else 0.0
    a, b = want.astype(np.float64), got.astype(np.float64)
    if not np.isfinite(b[np.isfinite(a)]).all():
        return float("-inf")
    keep = np.isfinite(a)
    power, noise = float(np.mean(a[keep] ** 2)) if keep.any() else 0.0, float(np.mean((a - b)[keep] ** 2)) if keep.any() else 0.0
    return float("inf") if noise == 0 else 10 * np.log10(max(power, 1e-300) / noise)


def _stored_in_bf16(model: onnx.ModelProto) -> onnx.ModelProto:
    made = _copy(model)
    casts = []
    for tensor in made.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and int(np.prod(tensor.dims)) >= _SMALL:
            name = f"{tensor.name}_bf16"
            casts.append(onnx.helper.make_node("Cast", [name], [tensor.name], name=f"{tensor.name}_to_float", to=TensorProto.FLOAT))
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(ml_dtypes.bfloat16), name))
    nodes = list(made.graph.node)
    del made.graph.node[:]
    made.graph.node.extend([*casts, *nodes])
    return made


def _db(value: float) -> str:
    return f"{value:.0f} dB" if np.isfinite(value) else "overflow" if value < 0 else "exact"
