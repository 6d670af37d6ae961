"""Half precision, with the nodes that lose too much accuracy left in float32: found by comparing every value of the two graphs on several cases.

A node is sensitive if its error is much larger than that of its inputs, or if it overflows. The most sensitive are put back
into float32, round by round, as long as the outputs gain. fp16 is converted by ONNX Runtime's own tool. bf16 keeps the weights in
bfloat16, except for those of sensitive nodes, and computes in float32: ONNX Runtime's CPU provider has bfloat16 kernels for what moves
data and for none that computes (1.31: no MatMul, Gemm, Conv, Add), and a file that can't be run here can't be verified.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from onnxproof.errors import UsageError
from onnxproof.exporter.half_simulation import (
    HalfSimulation,
    Inputs,
    convertible_weights,
    copy_model,
    inputs_of,
    replace_nodes,
    run_graph,
    worst_db,
)
from onnxproof.onnxmodel import large_models
from onnxproof.system.writing import replace_file

KINDS = ("fp16", "bf16")
_ENOUGH_DB, _GAIN_DB = 60.0, 1.0
"""Decibels at which the search ends, and the gain for which more nodes stay in float32. Not measured."""
_MAX_ROUNDS = 12
"""Rounds of the search; the nodes in float32 double with each. Not measured."""
_MAX_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredPrecision:
    """The result: which nodes stay in float32, and how accurate the outputs are."""

    kind: str
    kept: tuple[str, ...]
    """Nodes that stay in float32, the most sensitive first."""
    before_db: float
    """Output signal against error with every node in half precision."""
    after_db: float
    cases: int = 1

    def describe(self) -> str:
        """One line for the record."""
        kind = self.kind
        if kind == "bf16":
            kind = "bf16 weights, float32 arithmetic"
        text = f"{kind} ({_format_db(self.after_db)} on {self.cases} cases)"
        if self.kept:
            names = ", ".join(self.kept[:_MAX_SHOWN])
            more = " ..." if len(self.kept) > _MAX_SHOWN else ""
            text += f"; kept in float32 (from {_format_db(self.before_db)}): {names}{more}"
        return text


def check(kind: str | None) -> None:
    """Refuse an unknown precision before anything is exported."""
    if kind is not None and kind not in KINDS:
        raise UsageError(
            "unknown-precision",
            f"`--precision {kind}` is not known",
            help=f"say one of {', '.join(KINDS)}",
        )


def lower_precision(
    path: Path,
    kind: str,
    inputs: Inputs,
) -> LoweredPrecision:
    """Rewrite a float32 file in half precision, in place."""
    simulation = HalfSimulation.of(onnx.load(path), kind, inputs)
    before = simulation.measure_db(())
    kept, after = _search(simulation.measure_db, simulation.sensitive_nodes, before)
    if kind == "fp16":
        model = _convert_to_fp16(simulation.model, kept)
    else:
        model = _store_in_bf16(simulation.model, kept)
        # of the file itself, which computes what the simulation does
        after = worst_db(simulation.reference, run_graph(model, inputs))
    with replace_file(path, what="the model") as draft:
        large_models.save(model, draft)
    return LoweredPrecision(
        kind=kind,
        kept=kept,
        before_db=before,
        after_db=after,
        cases=len(inputs),
    )


def _search(
    measure: Callable[[Sequence[str]], float],
    find_sensitive: Callable[[Sequence[str]], list[tuple[float, str]]],
    start_db: float,
) -> tuple[tuple[str, ...], float]:
    """Keep more and more nodes in float32, until the outputs are accurate enough or no node is sensitive.

    1. All nodes that overflow are kept; then measure again, since one overflow hides the next.
    2. If none overflows, the most sensitive ones, as many as are kept already.
    3. A set of nodes is taken if the outputs gain by it; a later, larger one may gain even if this one does not.
    """
    kept: list[str] = []
    best: tuple[str, ...] = ()
    best_db = start_db
    for _ in range(_MAX_ROUNDS):
        if best_db >= _ENOUGH_DB:
            break
        sensitive = [(rating, name) for rating, name in find_sensitive(kept) if name not in kept]
        if not sensitive:
            break
        added = [name for rating, name in sensitive if np.isinf(rating)]  # step 1
        if not added:
            added = [name for _, name in sensitive[: max(1, len(kept))]]  # step 2
        kept += added
        level = measure(kept)
        if level > best_db + _GAIN_DB:  # step 3
            best = tuple(kept)
            best_db = level
    return best, best_db


def _convert_to_fp16(model: onnx.ModelProto, kept: Sequence[str]) -> onnx.ModelProto:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    converted: onnx.ModelProto = convert_float_to_float16(
        copy_model(model),
        keep_io_types=True,
        node_block_list=list(kept),
    )
    # an input used twice (x * x) is cast twice under one name, which no runtime opens: the first cast stays
    by_output = {tuple(node.output): node for node in reversed(converted.graph.node)}
    nodes = list(reversed(by_output.values()))
    outputs = {port.name for port in converted.graph.output}
    return replace_nodes(converted, _remove_half_casts(nodes, outputs))


def _remove_half_casts(
    nodes: Sequence[onnx.NodeProto],
    outputs: Collection[str],
) -> list[onnx.NodeProto]:
    """The nodes without casts to half and back between two that are kept in float32.

    The tool casts around each kept node, and a value that one passes to the next would overflow on the way.
    """
    originals = _values_cast_back(nodes)
    for name in outputs:
        originals.pop(name, None)
    consumed = set(outputs)
    for node in nodes:
        for place, name in enumerate(node.input):
            node.input[place] = originals.get(name, name)
        consumed.update(node.input)
    return [node for node in nodes if node.op_type != "Cast" or node.output[0] in consumed]


def _values_cast_back(nodes: Sequence[onnx.NodeProto]) -> dict[str, str]:
    """Values that were cast to half and back, with the value before the casts."""
    half = {node.output[0]: node.input[0] for node in nodes if _casts_to(node, TensorProto.FLOAT16)}
    originals = {}
    for node in nodes:
        if _casts_to(node, TensorProto.FLOAT) and node.input[0] in half:
            originals[node.output[0]] = half[node.input[0]]
    return originals


def _casts_to(node: onnx.NodeProto, dtype: int) -> bool:
    if node.op_type != "Cast":
        return False
    return any(attribute.name == "to" and attribute.i == dtype for attribute in node.attribute)


def _store_in_bf16(model: onnx.ModelProto, kept: Sequence[str]) -> onnx.ModelProto:
    """A cast behind every weight that is kept in bfloat16; the nodes consume the same names as before."""
    stored = copy_model(model)
    spared = inputs_of(stored, kept)
    casts = []
    for tensor in convertible_weights(stored, "bf16"):
        if tensor.name in spared:
            continue
        name = f"{tensor.name}_bf16"
        cast = onnx.helper.make_node(
            "Cast",
            [name],
            [tensor.name],
            name=f"{tensor.name}_to_float",
            to=TensorProto.FLOAT,
        )
        casts.append(cast)
        values = numpy_helper.to_array(tensor).astype(ml_dtypes.bfloat16)
        tensor.CopyFrom(numpy_helper.from_array(values, name))
    return replace_nodes(stored, [*casts, *stored.graph.node])


def _format_db(level: float) -> str:
    if np.isfinite(level):
        return f"{level:.0f} dB"
    if level < 0:
        return "overflow"
    return "exact"
