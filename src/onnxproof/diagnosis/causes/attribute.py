"""An attribute of a node is not what the module says.

What it is: the right operator with a wrong number or mode: an epsilon, the form of GELU, alpha or beta, an axis, a
padding, a coordinate or rounding mode, exclusive or reverse, the divisor of a variance, a scale, a constant operand.

Why it happens: exporters and fusions fall back to the standard's default, copy the attribute of another layer, or
know one framework's convention and not the other's.

How to see it: the node is wrong while its inputs are right, and the same node with another value is right.

How to fix it: export again with a newer exporter, or take the mended file that onnxproof writes.

Example: LayerNorm trained with epsilon 1e-12, written with 1e-5: only rows of low variance show it.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from onnxproof.diagnosis.counterfactuals.swapped_operator import other_operator
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench, attribute, set_attribute
from onnxproof.results import Fix

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant
    from onnxproof.reference.traced_value import TracedValue

TITLE = "a node's attribute differs from the module's"
PRICE = 30
_CODES = {
    "ScatterElements": "scatter",
    "ScatterND": "scatter",
    "Clip": "clipping",
    "Round": "rounding",
    "ArgMax": "tie-order",
    "ArgMin": "tie-order",
}
_CALL_CODES = {
    "clamp": "clipping",
    "clamp_min": "clipping",
    "clamp_max": "clipping",
    "hardtanh": "clipping",
    "tril": "masking",
    "triu": "masking",
    "scatter_reduce": "scatter",
    "index_put": "scatter",
    "native_batch_norm": "attribute",
}
_WORDS = {
    "approximate": ("none", "tanh"),
    "reduce": ("sum", "prod", "mean", "amax", "amin"),
    "rounding_mode": ("floor", "trunc"),
}
_IDLE = (
    ("mul", "other", 1),
    ("div", "other", 1),
    ("add", "other", 0),
    ("sub", "other", 0),
    ("add", "alpha", 0),
    ("sub", "alpha", 0),
)
"""Arguments with which a call does nothing: then it is the call that is missing."""
_CONV = {"stride": "strides", "dilation": "dilations"}
_ACTIVATIONS = (
    "relu",
    "relu6",
    "gelu",
    "silu",
    "hardswish",
    "sigmoid",
    "hardsigmoid",
    "tanh",
    "mish",
    "elu",
    "celu",
    "selu",
    "softplus",
    "leaky_relu",
    "hardtanh",
)
_KNOWN = (
    2**0.5,
    0.5**0.5,
    (2 / math.pi) ** 0.5,
    0.044715,
    math.pi,
    2 * math.pi,
    math.e,
    math.log(2),
    1 / math.log(2),
    math.log(10),
    1 / math.log(10),
    0.5,
    2.0,
    1.702,
)
"""Numbers inside activations and logarithms, which no argument of the module's call shows."""
_FLOATS = {
    "epsilon": (1e-5, 1e-6, 1e-12, 1e-3, 1e-8, 1e-7, 1e-4, 1e-2),
    "alpha": (1.0, 0.01, 0.1, 0.2, 1 / 6, 0.3, 1.6732632423543772, 0.5, 1.702),
    "beta": (1.0, 0.5, 0.0),
    "gamma": (1.0507009873554805,),
    "cubic_coeff_a": (-0.75, -0.5),
    "extrapolation_value": (0.0,),
    "momentum": (0.9,),
    "scale": (1.0,),
    "bias": (0.0,),
    "lambd": (0.5,),
}
_STRINGS = {
    "approximate": ("none", "tanh"),
    "mode": (
        "constant",
        "reflect",
        "edge",
        "wrap",
        "nearest",
        "linear",
        "cubic",
        "bilinear",
        "bicubic",
        "DCR",
        "CRD",
    ),
    "coordinate_transformation_mode": (
        "half_pixel",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "half_pixel_symmetric",
    ),
    "nearest_mode": ("floor", "round_prefer_floor", "round_prefer_ceil", "ceil"),
    "padding_mode": ("zeros", "border", "reflection"),
    "reduction": ("none", "add", "mul", "max", "min"),
    "direction": ("forward", "reverse", "LEFT", "RIGHT"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
}
_FLAGS = (
    "count_include_pad",
    "exclusive",
    "reverse",
    "linear_before_reset",
    "transA",
    "transB",
    "largest",
    "sorted",
    "select_last_index",
    "align_corners",
    "ceil_mode",
    "fmod",
    "upper",
    "training_mode",
    "exclude_outside",
    "antialias",
    "input_forget",
    "noop_with_empty_axes",
    "keepdims",
    "storage_order",
)

_REDUCTIONS = (
    (
        "ReduceMean",
        "ReduceSum",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "ReduceLogSumExp",
    ),
)


def test(bench: Workbench) -> Tried | str:
    """The file's numbers in the module's calls, and the module's numbers in the file's nodes."""
    return bench.whatif(partial(_variants, bench), cure=lambda: _mended(bench))


def _variants(bench: Workbench, entry: "TracedValue") -> "Iterator[Variant]":
    """Every argument of a call with each value that the file, or another convention, has for it."""
    import torch

    from onnxproof.diagnosis.counterfactuals.changed_reference import (
        VIEWS,
        Variant,
        instead,
        with_arguments,
    )

    code = _CALL_CODES.get(entry.op, "attribute")
    if entry.op == "convolution":
        for node in bench.nodes[:2]:
            given = {
                name: list(attribute(node, theirs))
                for name, theirs in _CONV.items()
                if attribute(node, theirs) is not None
            }
            pads = attribute(node, "pads")
            if pads is not None:
                given["padding"] = list(pads[: len(pads) // 2])
            yield Variant(
                what=f"with {', '.join(f'{n}={v}' for n, v in given.items())}",
                change=with_arguments(**given),
            )
    for other in _ACTIVATIONS if entry.op in _ACTIVATIONS else ():
        if other != entry.op:
            yield Variant(
                what=f"as `{other}`",
                change=instead(lambda x, *rest, f=other: getattr(torch.nn.functional, f)(x)),
            )
    for name, value in entry.arguments.items() if entry.op not in VIEWS else ():
        for other in _others(bench, name, value):
            if other != value or type(other) is not type(value):
                idle = (entry.op.rstrip("_"), name, other) in _IDLE
                lost = "mutation" if entry.op.endswith("_") else "missing-op"
                bias = name == "beta" and other == 0 and entry.op in ("addmm", "baddbmm")
                yield Variant(
                    what="without its bias" if bias else f"with {name}={other} instead of {value}",
                    change=with_arguments(**{name: other}),
                    code=lost if idle else "weights" if bias else code,
                )


def _others(bench: Workbench, name: str, value: Any) -> list[Any]:
    floats, lists = _written(bench)
    if isinstance(value, bool):
        return [not value]
    if name in _WORDS:
        return list(_WORDS[name])
    if name in ("dim", "axis") and isinstance(value, int):
        return list(range(-4, 4))
    if isinstance(value, float) or (
        name
        in (
            "eps",
            "scale",
            "negative_slope",
            "alpha",
            "beta",
            "correction",
            "threshold",
            "p",
            "ord",
            "other",
            "value",
        )
        and (value is None or isinstance(value, int))
    ):
        return [
            *floats,
            *((1e-5, 1e-6, 1e-12) if name == "eps" else ()),
            0.0,
            1.0,
            2.0,
            *((0.5,) if isinstance(value, float) else ()),
        ]
    if isinstance(value, list) and value and all(isinstance(v, int) for v in value):
        return [
            *[v for v in lists if len(v) == len(value)],
            [1] * len(value),
            [0] * len(value),
            value[::-1],
        ]
    if isinstance(value, int):
        return [
            *(int(v) for v in floats if v == int(v)),
            0,
            1,
            -value,
            value - 1,
            value + 1,
            *((None,) if name == "divisor_override" else ()),
        ]
    return []


def _written(bench: Workbench) -> tuple[list[float], list[list[int]]]:
    """The numbers of the located nodes: attributes and small constants."""
    floats: list[float] = []
    lists: list[list[int]] = []
    for node in bench.around:
        for a in node.attribute:
            value = onnx.helper.get_attribute_value(a)
            if isinstance(value, int | float):
                floats.append(float(value))
            elif isinstance(value, list) and value and isinstance(value[0], int):
                lists += [list(value), list(value[: len(value) // 2])]
        floats += [
            float(v)
            for _, _, array in bench.constants(node)
            if array.size <= 4 and array.dtype.kind in "fi"
            for v in array.reshape(-1)
        ]
    return [v for v in dict.fromkeys(floats) if np.isfinite(v)][:12], lists


def _mended(bench: Workbench) -> Tried | str:
    """Try every other value an attribute of the named nodes could have, the module's own first."""
    best: Tried | None = None
    for node in bench.around:
        for name, old, new in _options(bench, node):
            model = bench.with_node(node, partial(set_attribute, name=name, value=new))
            after = bench.distance(model)
            if best is None or after < best.after:
                what = f"`{name}` of {node.name or node.output[0]} ({node.op_type}) is {_say(old)}, and {_say(new)} {'gives what the module gives' if bench.cured(after) else 'comes nearer to what the module gives'}"
                code = _CODES.get(
                    node.op_type,
                    {"training_mode": "train-mode", "clip": "clipping"}.get(name, "attribute"),
                )
                best = Tried(
                    proven=bench.cured(after),
                    evidence=what,
                    after=after,
                    code=code,
                    model=model,
                    fix=Fix(
                        kind="graph",
                        what=f"set `{name}` of {node.name or node.output[0]} to {_say(new)}",
                    ),
                )
            if bench.cured(after):
                return best if best is not None else ""
    return (
        _operand(bench)
        or _reduced(bench)
        or _factor(bench)
        or (
            best
            if best is not None and best.after < bench.before / 20
            else "no other attribute of the named nodes mends it"
        )
    )


def _reduced(bench: Workbench) -> Tried | None:
    """A sum for a mean, a least for a largest: the located node with each other reduction."""
    tried = (
        other_operator(bench, _REDUCTIONS, attributes=True)
        if any(node.op_type in _REDUCTIONS[0] for node in bench.nodes[:4])
        else None
    )
    return tried if isinstance(tried, Tried) else None


def _operand(bench: Workbench) -> Tried | None:
    """A scalar operand, such as the epsilon that is added before a logarithm: the module's own numbers in its place."""
    for node in bench.around:
        numbers = _numbers(bench, node)
        for place, _, value in bench.constants(node):
            if value.size != 1 or (
                value.dtype.kind != "f"
                and node.op_type in ("Reshape", "Gather", "Slice", "Unsqueeze", "Squeeze", "Expand")
            ):
                continue
            present = float(value.reshape(-1)[0])
            for number in sorted(numbers, key=lambda n: abs(n - present)):
                if number != present:
                    model = bench.with_constant(
                        node, place, np.full(value.shape, number, value.dtype)
                    )
                    after = bench.distance(model)
                    if bench.cured(after):
                        frozen = (
                            node.op_type in ("SequenceAt", "Gather", "Slice")
                            and number < 0 <= present
                        )  # the example's last place for the last place
                        code = (
                            "baked-dimension" if frozen else _CODES.get(node.op_type, "attribute")
                        )
                        return Tried(
                            proven=True,
                            after=after,
                            code=code,
                            model=model,
                            evidence=f"operand {place} of {node.name or node.output[0]} ({node.op_type}) is {present:.9g}; the module has {number:.9g}",
                            fix=Fix(
                                kind="graph",
                                what=f"set the constant operand {place} of {node.name or node.output[0]} to {number:g}",
                            ),
                        )
    return None


def _factor(bench: Workbench) -> Tried | None:
    """The right values but for one factor: n for n - 1 under a variance, a scale that was left out."""
    node = bench.guilty
    entry = bench.counterpart(node) if node is not None else None
    true, found = (
        (bench.located.fetch(entry.place), bench.value(node.output[0]))
        if node is not None and entry is not None
        else (None, None)
    )
    if (
        node is None
        or true is None
        or found is None
        or true.shape != found.shape
        or true.dtype.kind != "f"
    ):
        return None
    large = np.abs(found) > 1e-3 * np.abs(found).max(initial=0)
    ratios = true[large] / found[large].astype(np.float64) if large.any() else np.zeros(0)
    if (
        not ratios.size
        or not np.isfinite(ratios).all()
        or np.ptp(ratios) > 1e-4 * abs(ratios.mean())
    ):
        return None
    ratio = float(np.median(ratios))
    if abs(ratio - 1) < 1e-5:
        return None  # what is small differs, and no factor does that
    counts = {
        n for array in bench.scene.case.inputs.values() for n in (*array.shape, array.size)
    } | {int(n) for e in bench.located.traced_values for n in e.sketch.shape}
    divisor = next(
        (
            n
            for n in sorted(counts)
            if n > 1 and min(abs(ratio - n / (n - 1)), abs(ratio - (n - 1) / n)) < 2e-6 * ratio
        ),
        None,
    )
    numbers = [v for v in _numbers(bench, node) if v]
    number = next(
        (
            v
            for v in [*numbers, *(a / b for a in numbers for b in numbers)]
            if abs(v - ratio) < 1e-5 * abs(ratio)
        ),
        None,
    )
    what = (
        f"it divides by {divisor} where the module divides by {divisor - 1} (or the reverse)"
        if divisor
        else f"the module has a factor {number:g}"
        if number
        else "a factor was lost"
    )
    return Tried(
        proven=bool(divisor or number),
        after=0.0,
        evidence=f"{node.name or node.output[0]} ({node.op_type}) gives the module's values times {1 / ratio:.7g}: {what}",
    )


def _numbers(bench: Workbench, node: onnx.NodeProto) -> list[float]:
    """Numbers that the module's own operation was called with, and those of the operations around it."""
    entry = bench.counterpart(node)
    near = [
        e
        for e in bench.located.traced_values
        if entry is not None and abs(e.place - entry.place) <= 6
    ] or bench.located.traced_values[:200]
    found: list[float] = []
    for e in near:
        for value in e.arguments.values():
            several = [
                float(v)
                for v in (value if isinstance(value, list | tuple) else [value])
                if isinstance(v, int | float) and not isinstance(v, bool)
            ]
            found += [*several, float(np.prod(several))] if several else []
    more = [
        x
        for v in found
        for x in (
            v,
            -v,
            1 / v if v else 0.0,
            v**0.5 if v > 0 else 0.0,
            1 / v**0.5 if v > 0 else 0.0,
        )
    ]
    return list(dict.fromkeys([*more[:48], *_KNOWN, 1e-5, 1e-6, 1e-12, 1e-8]))


def _options(bench: Workbench, node: onnx.NodeProto) -> Iterator[tuple[str, Any, Any]]:
    """(name, present value, other value) for the attributes that the operator's schema knows."""
    try:
        schema = onnx.defs.get_schema(
            node.op_type,
            max(e.version for e in bench.model.opset_import if e.domain in ("", "ai.onnx")),
            "",
        )
    except (onnx.defs.SchemaError, ValueError):
        return
    own = bench.counterpart(node)
    theirs = (
        [float(v) for v in own.arguments.values() if isinstance(v, float)]
        if own is not None
        else []
    )
    for name, described in schema.attributes.items():
        old = attribute(node, name)
        default = (
            onnx.helper.get_attribute_value(described.default_value)
            if described.default_value.type
            else None
        )
        now = default if old is None else old
        for new in _values(name, now, theirs, node):
            if new != now and not (isinstance(now, bytes) and now.decode() == new):
                yield name, now, new


def _values(name: str, now: Any, theirs: list[float], node: onnx.NodeProto) -> list[Any]:
    if name in ("clip", "activations"):
        return [None]  # a recurrent cell without it
    if name in _STRINGS:
        return list(_STRINGS[name])
    if name in _FLAGS:
        return [0, 1]
    if name == "axis":
        return list(range(-4, 4))
    if name in _FLOATS:
        return [*theirs, *(v for v in _FLOATS[name] if v is not None)]
    if name in ("pads", "dilations", "strides") and isinstance(now, list | tuple) and len(now) > 1:
        half = len(now) // 2
        turned = [*now[half:], *now[:half]] if name == "pads" else list(reversed(now))
        return [
            turned,
            [max(now)] * len(now),
            [1] * len(now),
            [min(now)] * len(now),
            *(
                [[sum(now) // len(now)] * len(now)]
                if name == "pads"
                else [[2] * len(now), [3] * len(now), [4] * len(now)]
            ),
        ]
    return []


def _say(value: Any) -> str:
    if isinstance(value, bytes):
        return f"`{value.decode()}`"
    return f"{value:g}" if isinstance(value, float) else f"`{value}`"
