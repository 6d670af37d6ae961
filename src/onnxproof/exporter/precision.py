"""Half precision, with the nodes that can't bear it left in float32: found by comparing every value of the two graphs on several cases.

A node is sensitive when its result is much further off than what went into it, or overflows. The most sensitive are given back
to float32, round by round, as long as the outputs gain. fp16 is converted by ONNX Runtime's own tool. bf16 keeps the weights in
bfloat16, those of sensitive nodes apart, and computes in float32: ONNX Runtime's CPU provider has bfloat16 kernels for what moves
data and for none that computes (1.31: no MatMul, Gemm, Conv, Add), and a file that nobody here can open can't be proven.
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
    Feeds,
    Halving,
    copied,
    narrowed,
    run,
    weights_of,
    with_nodes,
    worst_db,
)
from onnxproof.system.writing import replace_file

KINDS = ("fp16", "bf16")
_ENOUGH_DB, _GAIN_DB = 60.0, 1.0
_ROUNDS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """What became of it."""

    kind: str
    kept: tuple[str, ...]
    """Nodes that stay in float32, the most sensitive first."""
    before_db: float
    """Output signal against error with every node in half precision."""
    after_db: float
    cases: int = 1

    def words(self) -> str:
        """For the record."""
        what = "fp16" if self.kind == "fp16" else "bf16 weights, float32 arithmetic"
        kept = (
            f"; kept in float32 (from {_db(self.before_db)}): {', '.join(self.kept[:6])}{' ...' if len(self.kept) > 6 else ''}"
            if self.kept
            else ""
        )
        return f"{what} ({_db(self.after_db)} on {self.cases} cases){kept}"


def check(kind: str | None) -> None:
    """Refuse what is not known before anything is exported."""
    if kind is not None and kind not in KINDS:
        raise UsageError(
            "unknown-precision",
            f"`--precision {kind}` is not known",
            help=f"say one of {', '.join(KINDS)}",
        )


def lower(path: Path, kind: str, feeds: Feeds) -> Lowered:
    """Rewrite a float32 file in half precision, in place."""
    halving = Halving.of(onnx.load(path), kind, feeds)
    before = halving.reached(())
    best, after = _search(halving.reached, halving.sensitive, before)
    made = (
        _converted(halving.model, best) if kind == "fp16" else _stored_in_bf16(halving.model, best)
    )
    if kind == "bf16":
        after = worst_db(
            halving.wanted, run(made, feeds)
        )  # of the file itself: here the simulation and it are one
    with replace_file(path, what="the model") as draft:
        onnx.save(made, draft)
    return Lowered(kind=kind, kept=best, before_db=before, after_db=after, cases=len(feeds))


def _search(
    measure: Callable[[Sequence[str]], float],
    sensitive: Callable[[Sequence[str]], list[tuple[float, str]]],
    start: float,
) -> tuple[tuple[str, ...], float]:
    """Keep more and more nodes: all that overflow, else the worst few, and look again, since one overflow hides the next."""
    kept: list[str] = []
    best: tuple[str, ...] = ()
    reached = start
    for _ in range(_ROUNDS):
        found = (
            [(rating, name) for rating, name in sensitive(kept) if name not in kept]
            if reached < _ENOUGH_DB
            else []
        )
        if not found:
            break
        kept += [name for rating, name in found if np.isinf(rating)] or [
            name for _, name in found[: max(1, len(kept))]
        ]
        value = measure(kept)
        if value > reached + _GAIN_DB:
            best, reached = tuple(kept), value
    return best, reached


def _converted(model: onnx.ModelProto, kept: Sequence[str]) -> onnx.ModelProto:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    made: onnx.ModelProto = convert_float_to_float16(
        copied(model), keep_io_types=True, node_block_list=list(kept)
    )
    once = {
        tuple(node.output): node for node in reversed(made.graph.node)
    }  # an input used twice (x * x) is cast twice under one name, which no runtime opens
    return with_nodes(
        made,
        _without_narrow_passages(
            list(reversed(once.values())), {port.name for port in made.graph.output}
        ),
    )


def _without_narrow_passages(
    nodes: Sequence[onnx.NodeProto], outputs: Collection[str]
) -> list[onnx.NodeProto]:
    """The nodes without casts to half and back between two that are kept: the tool casts around each, and what one hands to the next would overflow on the way."""
    made_by = {name: node for node in nodes for name in node.output}
    wide: dict[str, str] = {}
    for node in nodes:
        narrow = made_by.get(node.input[0]) if _casts_to(node, TensorProto.FLOAT) else None
        if (
            narrow is not None
            and _casts_to(narrow, TensorProto.FLOAT16)
            and node.output[0] not in outputs
        ):
            wide[node.output[0]] = narrow.input[0]
    for node in nodes:
        for place, name in enumerate(node.input):
            node.input[place] = wide.get(name, name)
    read = {name for node in nodes for name in node.input} | set(outputs)
    return [node for node in nodes if node.op_type != "Cast" or node.output[0] in read]


def _casts_to(node: onnx.NodeProto, kind: int) -> bool:
    return node.op_type == "Cast" and any(
        attribute.name == "to" and attribute.i == kind for attribute in node.attribute
    )


def _stored_in_bf16(model: onnx.ModelProto, kept: Sequence[str]) -> onnx.ModelProto:
    """A cast behind every weight that is kept in bfloat16; the nodes read what they read before."""
    made = copied(model)
    spared = weights_of(made, kept)
    casts = []
    for tensor in narrowed(made, "bf16"):
        if tensor.name not in spared:
            name = f"{tensor.name}_bf16"
            casts.append(
                onnx.helper.make_node(
                    "Cast",
                    [name],
                    [tensor.name],
                    name=f"{tensor.name}_to_float",
                    to=TensorProto.FLOAT,
                )
            )
            tensor.CopyFrom(
                numpy_helper.from_array(
                    numpy_helper.to_array(tensor).astype(ml_dtypes.bfloat16), name
                )
            )
    return with_nodes(made, [*casts, *made.graph.node])


def _db(value: float) -> str:
    return f"{value:.0f} dB" if np.isfinite(value) else "overflow" if value < 0 else "exact"
