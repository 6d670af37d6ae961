"""Axes or operands stand in another order.

What it is: the right numbers in another place: a transpose with another permutation, a reshape that should have been
a transpose, operands of a concatenation or a subtraction exchanged.

Why it happens: where two dims have the same size no shape check notices.

How to see it: the node's values are the module's in another order, and another permutation makes the answers right.

How to fix it: export again, or take the mended file.

Example: `Tensor.unfold` with as many windows as the window is long.
"""

import itertools
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import onnx

from onnxproof.causes._swap import other_order
from onnxproof.causes._workbench import Tried, Workbench, attribute, set_attribute
from onnxproof.types import Fix

if TYPE_CHECKING:
    from onnxproof.causes._whatif import Variant
    from onnxproof.locate._trace import Entry

TITLE = "axes or operands stand in another order"
PRICE = 16
_PAST = ("past", "cache", "pk", "pv", "key_cache", "value_cache")


def test(bench: Workbench) -> Tried | str:
    """Other orders of axes and operands in the module's own calls, and in the located nodes."""
    return bench.whatif(partial(_variants, bench), views=True, cure=lambda: _turned_back(bench))


def _variants(bench: Workbench, entry: "Entry") -> "Iterator[Variant]":
    import torch

    from onnxproof.causes._whatif import Variant, instead, skipped, with_arguments

    shape = entry.sketch.shape
    if entry.op in ("transpose", "permute", "t"):
        yield Variant(what="left out", change=skipped())
    if entry.op == "permute":
        for order in itertools.islice(itertools.permutations(range(len(shape))), 720):
            yield Variant(what=f"with dims={list(order)}", change=with_arguments(dims=list(order)))
    if entry.op == "cat":
        code = "cache" if any(i.name.lower().startswith(_PAST) for i in bench.scene.signature.inputs) else ""
        yield Variant(what="in the reverse order", change=instead(lambda tensors, *rest: torch.cat(list(tensors)[::-1], *rest)), code=code)
    if entry.op in ("sub", "div", "matmul", "mm", "bmm", "pow"):
        yield Variant(what="with its operands exchanged", change=instead(lambda a, b: getattr(torch, entry.op)(torch.as_tensor(b), a)))


def _turned_back(bench: Workbench) -> Tried | str:
    swapped = other_order(bench, ("Concat", "Sub", "Div", "Where", "MatMul", "Pow"))
    if swapped is not None:
        node, model, after = swapped
        inputs = {i.name.lower() for i in bench.model.graph.input}
        code = "cache" if node.op_type == "Concat" and any("past" in n or n in ("pk", "pv") for n in inputs) else "masking" if node.op_type == "Where" else "axis-order"
        return Tried(proven=True, after=after, model=model, code=code, evidence=f"{node.name or node.output[0]} ({node.op_type}) is right with its operands exchanged",
                     fix=Fix(kind="graph", what=f"exchange the operands of {node.name or node.output[0]}"))
    for node in bench.nodes[:3]:
        rank = _rank(bench, node)
        for order in itertools.islice(itertools.permutations(range(rank)), 1, 120) if 2 <= rank <= 5 else ():
            model = _turned(bench, node, list(order))
            after = bench.distance(model)
            if bench.cured(after):
                return Tried(proven=True, after=after, model=model, evidence=f"the values of {node.name or node.output[0]} are right with their axes in the order {list(order)}",
                             fix=Fix(kind="graph", what=f"transpose the output of {node.name or node.output[0]} by {list(order)}"))
    return "no other order of axes or operands mends a named node"


def _rank(bench: Workbench, node: onnx.NodeProto) -> int:
    entry = bench.counterpart(node)
    return len(entry.sketch.shape) if entry is not None else 0


def _turned(bench: Workbench, node: onnx.NodeProto, order: list[int]) -> onnx.ModelProto:
    if node.op_type == "Transpose" and attribute(node, "perm") is not None:
        return bench.with_node(node, lambda n: set_attribute(n, "perm", [attribute(node, "perm")[k] for k in order]))

    def change(graph: onnx.GraphProto) -> None:
        place = [n.output[0] for n in graph.node].index(node.output[0])
        before = f"{node.output[0]}_unturned"
        graph.node[place].output[0] = before
        graph.node.insert(place + 1, onnx.helper.make_node("Transpose", [before], [node.output[0]], perm=order))

    return bench.edited(change)
