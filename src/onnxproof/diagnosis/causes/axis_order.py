"""Axes or operands stand in another order.

What it is: the right numbers in another place: a transpose with another permutation, a reshape that should have been
a transpose, operands of a concatenation or a subtraction exchanged.

Why it happens: where two dims have the same size no shape check notices.

How to see it: the node's values are the module's in another order, and another permutation makes the answers right.

How to fix it: export again, or take the mended file.

Example: `Tensor.unfold` with as many windows as the window is long.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx

from onnxproof.diagnosis.counterfactuals.swapped_operator import other_order
from onnxproof.diagnosis.counterfactuals.workbench import (
    Array,
    Tried,
    Workbench,
    attribute,
    set_attribute,
)
from onnxproof.numerics.relative_error import relative_error
from onnxproof.results import Fix

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant
    from onnxproof.reference.traced_value import TracedValue

TITLE = "axes or operands stand in another order"
PRICE = 16
_MOST_SLICES, _SAME = 2048, 1e-4
_PAST = ("past", "cache", "pk", "pv", "key_cache", "value_cache")


def test(bench: Workbench) -> Tried | str:
    """Other orders of axes and operands in the module's own calls, and in the located nodes."""
    return bench.whatif(partial(_variants, bench), views=True, cure=lambda: _turned_back(bench))


def _variants(bench: Workbench, entry: "TracedValue") -> "Iterator[Variant]":
    import torch

    from onnxproof.diagnosis.counterfactuals.changed_reference import (
        Variant,
        instead,
        skipped,
        with_arguments,
    )

    shape = entry.sketch.shape
    if not entry.inputs and entry.op != "cat":
        return  # a view of a parameter: that is a matter of weights
    if entry.op in ("transpose", "permute", "t"):
        yield Variant(what="left out", change=skipped())
    if entry.op == "permute":
        for order in itertools.islice(itertools.permutations(range(len(shape))), 720):
            yield Variant(what=f"with dims={list(order)}", change=with_arguments(dims=list(order)))
    if entry.op in ("cat", "stack"):
        join = getattr(torch, entry.op)
        yield Variant(
            what="in the reverse order",
            change=instead(lambda tensors, *rest: join(list(tensors)[::-1], *rest)),
            code=_code(bench),
        )
    if entry.op in ("sub", "div", "matmul", "mm", "bmm", "pow"):
        yield Variant(
            what="with its operands exchanged",
            change=instead(lambda a, b: getattr(torch, entry.op)(torch.as_tensor(b), a)),
        )


def _turned_back(bench: Workbench) -> Tried | str:
    swapped = other_order(bench, ("Concat", "Sub", "Div", "Where", "MatMul", "Pow"))
    if swapped is not None:
        node, model, after = swapped
        code = (
            _code(bench)
            if node.op_type == "Concat"
            else "masking"
            if node.op_type == "Where"
            else "axis-order"
        )
        return Tried(
            proven=True,
            after=after,
            model=model,
            code=code,
            evidence=f"{_named(node)} ({node.op_type}) is right with its operands exchanged",
            fix=Fix(kind="graph", what=f"exchange the operands of {_named(node)}"),
        )
    for node in [
        n for n in bench.nodes[:3] if n.op_type == "Transpose" and attribute(n, "perm") is not None
    ]:
        for order in itertools.islice(itertools.permutations(attribute(node, "perm")), 1, 120):
            model = bench.with_node(node, partial(set_attribute, name="perm", value=list(order)))
            after = bench.distance(model)
            if bench.cured(after):
                return Tried(
                    proven=True,
                    after=after,
                    model=model,
                    evidence=f"{_named(node)} is right with perm={list(order)}",
                    fix=Fix(kind="graph", what=f"set `perm` of {_named(node)} to {list(order)}"),
                )
    return (
        _before_reshape(bench)
        or _in_place(bench)
        or "no other order of axes or operands mends a named node"
    )


def _code(bench: Workbench) -> str:
    """What is joined in another order is a matter of the cache, where the model keeps one."""
    names = {i.name.lower() for i in bench.scene.signature.inputs} | {
        i.name.lower() for i in bench.model.graph.input
    }
    return "cache" if any(name.startswith(_PAST) for name in names) else "axis-order"


def _before_reshape(bench: Workbench) -> Tried | None:
    """A reshape that reads its input untransposed: the right numbers in the right shape, and each in another's place."""
    for node in [n for n in bench.nodes[:3] if n.op_type in ("Reshape", "Flatten")]:
        value = bench.value(node.input[0])
        rank = value.ndim if value is not None else 0
        for order in (
            itertools.islice(itertools.permutations(range(rank)), 1, 120) if 2 <= rank <= 5 else ()
        ):
            model = _inserted(
                bench,
                node,
                onnx.helper.make_node(
                    "Transpose", [node.input[0]], [f"{node.output[0]}_turned"], perm=list(order)
                ),
            )
            after = bench.distance(model)
            if bench.cured(after):
                return Tried(
                    proven=True,
                    after=after,
                    model=model,
                    evidence=f"{_named(node)} is right when its input is transposed by {list(order)} first",
                    fix=Fix(
                        kind="graph", what=f"transpose the input of {_named(node)} by {list(order)}"
                    ),
                )
    return None


def _inserted(bench: Workbench, node: onnx.NodeProto, before: onnx.NodeProto) -> onnx.ModelProto:
    def change(graph: onnx.GraphProto) -> None:
        place = [n.output[0] for n in graph.node].index(node.output[0])
        graph.node[place].input[0] = before.output[0]
        graph.node.insert(place, before)

    return bench.edited(change)


def _in_place(bench: Workbench) -> Tried | None:
    """The module's values with their axes, or their slices along one axis, in another order: put back in each named node, one after the other."""
    changes: list[Callable[[onnx.GraphProto], None]] = []
    told: list[str] = []
    values = bench.values([node.output[0] for node in bench.nodes[:6]])
    for node in bench.nodes[:6]:
        if any(value.dtype.kind == "f" and value.size > 1 for _, _, value in bench.constants(node)):
            continue  # it is the weights that stand in another order
        entry, found = bench.counterpart(node), values.get(node.output[0])
        true = bench.located.fetch(entry.place) if entry is not None else None
        put_back = (
            _put_back(found, true, node.output[0])
            if found is not None and true is not None and found.dtype.kind == "f"
            else None
        )
        if put_back is None:
            continue
        changes.append(put_back[0])
        told.append(f"{_named(node)} has the module's values with {put_back[1]}")
        model = bench.edited(partial(_all, changes=tuple(changes)))
        after = bench.distance(model)
        if bench.cured(after):
            return Tried(
                proven=True,
                after=after,
                model=model,
                evidence="; ".join(told[:4]),
                fix=Fix(kind="graph", what=f"put the values of {_named(node)} back in order"),
            )
    return None


def _put_back(
    found: Array, true: Array, output: str
) -> tuple[Callable[[onnx.GraphProto], None], str] | None:
    """The change of the graph that makes one value the other, and what is wrong in words."""
    for order in (
        itertools.islice(itertools.permutations(range(found.ndim)), 1, 120)
        if found.ndim <= 5
        else ()
    ):
        turned = found.transpose(order)
        if turned.shape == true.shape and relative_error(turned, true) < _SAME:
            return partial(
                _append,
                output=output,
                node=onnx.helper.make_node("Transpose", [""], [output], perm=list(order)),
            ), f"its axes in another order ({list(order)} puts them back)"
    for axis, count in enumerate(found.shape) if found.shape == true.shape else ():
        slices = _order(found, true, axis) if 1 < count <= _MOST_SLICES else None
        if slices is not None:
            return partial(
                _gather, output=output, axis=axis, order=slices
            ), f"its slices along axis {axis} in another order ({slices[:16]} puts them back)"
    return None


def _all(graph: onnx.GraphProto, *, changes: Sequence[Callable[[onnx.GraphProto], None]]) -> None:
    for change in changes:
        change(graph)


def _order(found: Array, true: Array, axis: int) -> list[int] | None:
    """For each of the module's slices the place where the file has it; None where one is nowhere, or all are in place."""
    left, right = (
        np.moveaxis(a.astype(np.float64), axis, 0).reshape(a.shape[axis], -1) for a in (found, true)
    )
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        return None
    far = np.sqrt(
        np.maximum((left**2).sum(1)[None] + (right**2).sum(1)[:, None] - 2 * right @ left.T, 0)
    )
    order = far.argmin(1)
    near = far[np.arange(len(order)), order] <= _SAME * np.sqrt((right**2).sum(1)) + 1e-12
    return (
        [int(i) for i in order]
        if near.all() and not np.array_equal(order, np.arange(len(order)))
        else None
    )


def _gather(graph: onnx.GraphProto, *, output: str, axis: int, order: list[int]) -> None:
    """Put slices back; a reversal in a way that holds for every length."""
    reverses = order == list(range(len(order)))[::-1]
    numbers = (
        {"starts": [-1], "ends": [-(2**31)], "axes": [axis], "steps": [-1]}
        if reverses
        else {"order": order}
    )
    names = [f"{output}_{name}" for name in numbers]
    graph.initializer.extend(
        onnx.numpy_helper.from_array(np.array(v, np.int64), n)
        for n, v in zip(names, numbers.values(), strict=True)
    )
    node = onnx.helper.make_node("Slice" if reverses else "Gather", ["", *names], [output])
    set_attribute(node, "axis", None if reverses else axis)
    _append(graph, output=output, node=node)


def _append(graph: onnx.GraphProto, *, output: str, node: onnx.NodeProto) -> None:
    """Let a node stand between a value and all its readers."""
    place = [n.output[0] for n in graph.node].index(output)
    graph.node[place].output[0] = node.input[0] = f"{output}_before"
    graph.node.insert(place + 1, node)


def _named(node: onnx.NodeProto) -> str:
    return node.name or node.output[0]
