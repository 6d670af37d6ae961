"""The weights in the file are not the module's.

What it is: another checkpoint, two initializers exchanged, a bias dropped, a weight rounded to half precision, or the
right numbers in another layout (transposed, gates or heads in another order, channels reversed).

Why it happens: external data at a wrong offset, a name that two tensors share, a stale checkpoint, a conversion that
knows another framework's order.

How to see it: the initializer differs from the parameter it stands for, and with the parameter in its place the
answers are right. Folded BatchNorm and transposed copies are seen through.

How to fix it: export again from the right checkpoint, or take the mended file.

Example: two LayerNorm weights of one shape read from each other's offset.
"""

import itertools
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx

from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench
from onnxproof.reference.torch_session import to_numpy
from onnxproof.results import Fix

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant
    from onnxproof.reference.traced_value import TracedValue

TITLE = "the weights in the file are not the module's"
PRICE = 20


def test(bench: Workbench) -> Tried | str:
    """Put the module's parameters in the place of the located nodes' constants, one node after the other."""
    session = bench.scene.reference.session
    if session is None or not hasattr(session.module, "named_parameters"):
        return "the reference has no parameters to compare with"
    pool = list(_parameters(session.module))
    whole = _by_name(bench, dict(pool))
    if whole is not None:
        return whole
    model, told, codes = bench.model, [], []
    for node in bench.nodes[:6]:
        found = _mend(bench, model, node, pool)
        if found is None:
            continue
        model, what, code = found
        told.append(what)
        codes.append(code)
        after = bench.distance(model)
        if bench.cured(after):
            return Tried(
                proven=True,
                evidence="; ".join(told[:4]),
                after=after,
                model=model,
                code=codes[0],
                fix=Fix(kind="graph", what="write the module's own weights into the file"),
            )
    if told:
        after = bench.distance(model)
        if after < bench.before / 5:
            return Tried(proven=False, evidence="; ".join(told[:4]), after=after)
    return _exchanged(bench) or _gates(bench) or bench.whatif(partial(_variants, bench))


def _exchanged(bench: Workbench) -> Tried | None:
    """Two nodes of one kind that read each other's weights."""
    for node in bench.nodes[:3]:
        mine = {
            place: value.shape
            for place, _, value in bench.constants(node)
            if value.dtype.kind == "f" and value.size > 1
        }
        for other in [
            n
            for n in bench.model.graph.node
            if mine and n.op_type == node.op_type and n.output[0] != node.output[0]
        ]:
            if {
                place: value.shape for place, _, value in bench.constants(other) if place in mine
            } != mine:
                continue
            for places in dict.fromkeys([tuple(mine), *((place,) for place in mine)]):
                model = bench.edited(
                    partial(_exchange, one=node.output[0], two=other.output[0], places=places)
                )
                after = bench.distance(model)
                if bench.cured(after):
                    names = f"{node.name or node.output[0]} and {other.name or other.output[0]}"
                    return Tried(
                        proven=True,
                        after=after,
                        model=model,
                        evidence=f"{names} read each other's weights",
                        fix=Fix(kind="graph", what=f"exchange the weights of {names}"),
                    )
    return None


def _exchange(graph: onnx.GraphProto, *, one: str, two: str, places: tuple[int, ...]) -> None:
    a, b = (next(n for n in graph.node if n.output[0] == name) for name in (one, two))
    for place in places:
        a.input[place], b.input[place] = b.input[place], a.input[place]


def _gates(bench: Workbench) -> Tried | None:
    """A recurrent layer whose gates stand in another framework's order."""
    for node in bench.nodes[:3]:
        count = {"LSTM": 4, "GRU": 3}.get(node.op_type)
        for places, order in (
            itertools.product(((1, 2, 3), (1, 2)), list(itertools.permutations(range(count)))[1:])
            if count
            else ()
        ):
            model = bench.edited(
                partial(_permute_gates, output=node.output[0], order=order, places=places)
            )
            after = bench.distance(model)
            if bench.cured(after):
                return Tried(
                    proven=True,
                    after=after,
                    model=model,
                    code="weight-layout",
                    evidence=f"the gates of {node.name or node.output[0]} ({node.op_type}) are right in the order {list(order)}",
                    fix=Fix(
                        kind="graph",
                        what=f"put the gates of {node.name or node.output[0]} in the order {list(order)}",
                    ),
                )
    return None


def _permute_gates(
    graph: onnx.GraphProto, *, output: str, order: tuple[int, ...], places: tuple[int, ...]
) -> None:
    """W and R hold a block of rows for each gate; B holds those of both, one after the other."""
    node = next(n for n in graph.node if n.output[0] == output)
    for place in [p for p in places if p < len(node.input)]:
        weight = next((t for t in graph.initializer if t.name == node.input[place]), None)
        if weight is not None:
            value = onnx.numpy_helper.to_array(weight)
            blocks = value.reshape(
                value.shape[0],
                -1,
                len(order),
                value.shape[1] // (len(order) * (2 if place == 3 else 1)),
                *value.shape[2:],
            )
            node.input[place] = f"{output}_gates_{place}"
            graph.initializer.append(
                onnx.numpy_helper.from_array(
                    np.ascontiguousarray(blocks[:, :, list(order)].reshape(value.shape)),
                    node.input[place],
                )
            )


def _variants(bench: Workbench, entry: "TracedValue") -> "Iterator[Variant]":
    """The module's own call with the constants of each located node in the place of its parameters."""
    import torch

    from onnxproof.diagnosis.counterfactuals.changed_reference import (
        Variant,
        instead,
        with_arguments,
    )

    if entry.op == "convolution":
        yield Variant(what="without its bias", change=with_arguments(bias=None))
    if entry.op in ("addmm", "baddbmm"):
        yield Variant(
            what="without its bias", change=instead(lambda bias, left, right, *rest: left @ right)
        )
    for node in bench.nodes[:3]:
        constants = [
            array.astype(np.float64)
            for _, _, array in bench.constants(node)
            if array.dtype.kind == "f" and array.size > 1
        ]

        def change(
            func: Any,
            args: tuple[Any, ...],
            kwargs: dict[str, Any],
            constants: list[Array] = constants,
        ) -> Any:
            left, taken = list(constants), list(args)
            for place, value in enumerate(args):
                if isinstance(value, torch.Tensor) and place > 0 and left:
                    fitting = next(
                        (k for k, array in enumerate(left) if array.size == value.numel()), None
                    )
                    if fitting is not None:
                        array = left.pop(fitting)
                        taken[place] = torch.from_numpy(
                            np.ascontiguousarray(array.reshape(tuple(value.shape)))
                        ).to(value.dtype)
            return func(*taken, **kwargs)

        if constants:
            yield Variant(
                what=f"with the constants of {node.name or node.output[0]} for its parameters",
                change=change,
            )


def _by_name(bench: Workbench, parameters: dict[str, Array]) -> Tried | None:
    """Another checkpoint: every initializer that bears a parameter's name gets that parameter's numbers."""
    model = bench.edited(lambda graph: None)
    wrong: list[str] = []
    for tensor in model.graph.initializer:
        value, true = onnx.numpy_helper.to_array(tensor), parameters.get(tensor.name)
        if true is not None and true.shape == value.shape and not _alike(value, true):
            tensor.CopyFrom(
                onnx.numpy_helper.from_array(
                    np.ascontiguousarray(true.astype(value.dtype)), tensor.name
                )
            )
            wrong.append(tensor.name)
    after = bench.distance(model) if len(wrong) > 1 else float("inf")
    if not bench.cured(after):
        return None
    return Tried(
        proven=True,
        after=after,
        model=model,
        evidence=f"{len(wrong)} initializers differ from the parameters of their names: {', '.join(wrong[:4])}",
        fix=Fix(kind="graph", what="write the module's own weights into the file"),
    )


def _mend(
    bench: Workbench, model: onnx.ModelProto, node: onnx.NodeProto, pool: list[tuple[str, Array]]
) -> tuple[onnx.ModelProto, str, str] | None:
    """The model with this node's wrong constants replaced, if doing so brings it nearer."""
    best: tuple[float, onnx.ModelProto, str, str] | None = None
    start = bench.distance(model)
    for place, name, value in bench.constants(node):
        if value.dtype.kind != "f" or (value.size < 2 and name not in dict(pool)):
            continue
        options = [(label, array) for label, array in pool if array.shape == value.shape]
        if (
            any(np.array_equal(array.astype(value.dtype), value) for _, array in options)
            and len(options) == 1
        ):
            continue
        for label, array in sorted(options, key=lambda pair: float(np.abs(pair[1] - value).mean()))[
            :12
        ]:
            if np.array_equal(array.astype(value.dtype), value):
                continue
            copied = onnx.ModelProto()
            copied.CopyFrom(model)
            new = f"{node.output[0]}_{place}_weights"
            copied.graph.initializer.append(
                onnx.numpy_helper.from_array(np.ascontiguousarray(array.astype(value.dtype)), new)
            )
            next(n for n in copied.graph.node if n.output[0] == node.output[0]).input[place] = new
            after = bench.distance(copied)
            if after < start * 0.9 and (best is None or after < best[0]):
                best = (after, copied, *_kind(bench, node, name, label, value, array, pool))
            if bench.cured(after):
                break
    return None if best is None else best[1:]


def _kind(
    bench: Workbench,
    node: onnx.NodeProto,
    name: str,
    label: str,
    value: Array,
    true: Array,
    pool: list[tuple[str, Array]],
) -> tuple[str, str]:
    """What is wrong with a constant, in words and as a code."""
    place = node.name or node.output[0]
    for half in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        if np.array_equal(true.astype(half).astype(value.dtype), value):
            return f"`{name}` of {place} is `{label}` rounded to {half}", "precision"
    if _alike(np.sort(value, axis=None), np.sort(true, axis=None)):
        image = (
            node.op_type == "Conv"
            and value.shape[1] == 3
            and node.input[0] in {i.name for i in bench.model.graph.input}
        )
        if image and _alike(value[:, ::-1], true):
            return f"the input channels of `{name}` are reversed (RGB and BGR)", "preprocessing"
        first = (
            node.op_type in ("Sub", "Div", "Mul", "Add")
            and value.size == 3
            and any(len(i.shape) == 4 and 3 in i.shape for i in bench.scene.signature.inputs)
        )
        if first and _alike(value.reshape(-1)[::-1], true.reshape(-1)):
            return (
                f"`{name}` holds `{label}` in the reverse order of channels (RGB and BGR)",
                "preprocessing",
            )
        return (
            f"`{name}` of {place} holds the numbers of `{label}` in another order",
            "weight-layout",
        )
    other = next(
        (
            text
            for text, array in pool
            if array.shape == value.shape and np.array_equal(array.astype(value.dtype), value)
        ),
        None,
    )
    return (
        (f"`{name}` of {place} holds `{other}`; it should be `{label}`", "weights")
        if other
        else (f"`{name}` of {place} differs from `{label}`", "weights")
    )


def _alike(a: Array, b: Array) -> bool:
    """Equal but for the rounding of a fold: folding is done in float32."""
    return bool(np.abs(a.astype(np.float64) - b).max(initial=0) <= 1e-6 * np.abs(b).max(initial=0))


def _parameters(module: Any) -> Iterator[tuple[str, Array]]:
    """Every parameter and buffer as it may stand in a file: as it is, transposed, and with the BatchNorm that follows folded in."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, tensor in tensors.items():
        array = (
            np.asarray(to_numpy(tensor), dtype=np.float64) if tensor.is_floating_point() else None
        )
        if array is None:
            continue
        yield name, array
        if array.ndim == 2:
            yield f"{name} transposed", np.ascontiguousarray(array.T)
        if array.ndim == 1:
            yield f"{name} as a column", array.reshape(-1, 1, 1)
    layers = [(name, layer) for name, layer in module.named_modules() if not list(layer.children())]
    for (conv_name, conv), (norm_name, norm) in itertools.pairwise(layers):
        if (
            hasattr(norm, "running_var")
            and norm.running_var is not None
            and hasattr(conv, "weight")
            and conv.weight.dim() >= 2
            and not hasattr(conv, "running_var")
        ):
            yield from _folded(conv_name, conv, norm_name, norm)


def _folded(conv_name: str, conv: Any, norm_name: str, norm: Any) -> Iterator[tuple[str, Array]]:
    weight = np.asarray(to_numpy(conv.weight), np.float64)
    mean, var = (np.asarray(to_numpy(t), np.float64) for t in (norm.running_mean, norm.running_var))
    if mean.shape[0] != weight.shape[0]:
        return
    scale = (
        np.asarray(to_numpy(norm.weight), np.float64) if norm.weight is not None else 1.0
    ) / np.sqrt(var + norm.eps)
    bias = np.asarray(to_numpy(conv.bias), np.float64) if conv.bias is not None else 0.0
    yield (
        f"{conv_name}.weight folded with {norm_name}",
        weight * scale.reshape(-1, *[1] * (weight.ndim - 1)),
    )
    yield (
        f"{conv_name}.bias folded with {norm_name}",
        (bias - mean) * scale
        + (np.asarray(to_numpy(norm.bias), np.float64) if norm.bias is not None else 0.0),
    )
