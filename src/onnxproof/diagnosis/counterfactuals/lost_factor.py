"""Values that are right but for one factor: n for n - 1 under a variance, a scale that was left out."""

from functools import partial

import numpy as np
import onnx

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals.module_numbers import module_numbers
from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench, node_name

_SMALL_SHARE = 1e-3
"""Elements below this share of the largest say nothing about a ratio: rounding is too large in them. Not measured."""
_SPREAD = 1e-4
"""Relative spread of the ratios up to which they are one factor. Not measured."""
_SAME_FACTOR = 1e-5
"""Relative distance up to which two factors are the same. Not measured."""
_SAME_DIVISOR = 2e-6
"""The same for n and n - 1, which are near to each other where n is large. Not measured."""


def find_lost_factor(workbench: Workbench) -> Tried | None:
    """Explain the values of a suspect by one factor.

    1. The ratio of the module's values to the node's is one number, and not 1: small elements that differ show no factor.
    2. It is n / (n - 1), or the reverse, for a size n of an input or of a traced value; or a number of the module, or
       the quotient of two; else a factor was lost, and nobody knows which.
    3. The file with the node's values times that factor goes before the judge.
    """
    likely: Tried | None = None
    for node in workbench.nodes[: limits.SUSPECTS_EDITED]:
        tried = _explain_node(workbench, node)
        if tried is not None and tried.judgement is not None:
            return tried
        likely = likely or tried
    return likely


def _explain_node(workbench: Workbench, node: onnx.NodeProto) -> Tried | None:
    """The steps for one node."""
    ratio = _ratio_to_module(workbench, node)
    if ratio is None or abs(ratio - 1) < _SAME_FACTOR:  # 1
        return None
    divisor = _divisor(workbench, ratio)  # 2
    number = _module_factor(workbench, node, ratio)
    if divisor:
        what = f"it divides by {divisor} where the module divides by {divisor - 1} (or the reverse)"
    elif number:
        what = f"the module has a factor {number:g}"
    else:
        what = "a factor was lost"
    observed = f"{node_name(node)} ({node.op_type}) gives the module's values times {1 / ratio:.7g}: {what}"
    scaled = workbench.try_model(
        workbench.with_graph(partial(_scale_output, output=node.output[0], factor=ratio)),
        evidence=f"{observed}; times {ratio:.7g}, the answers are right",
        fix=f"multiply what {node_name(node)} gives by {ratio:.9g}",
    )
    return scaled or Tried(evidence=observed)


def _scale_output(graph: onnx.GraphProto, *, output: str, factor: float) -> None:
    """Let a product with a constant stand between a value and all its readers."""
    place = [node.output[0] for node in graph.node].index(output)
    unscaled = f"{output}_unscaled"
    graph.node[place].output[0] = unscaled
    constant = onnx.numpy_helper.from_array(np.array(factor, np.float32), f"{output}_factor")
    graph.initializer.append(constant)
    product = onnx.helper.make_node("Mul", [unscaled, constant.name], [output])
    graph.node.insert(place + 1, product)


def _ratio_to_module(workbench: Workbench, node: onnx.NodeProto) -> float | None:
    """The one ratio of the module's values to the node's; None where there is no such number."""
    entry = workbench.counterpart(node)
    if entry is None:
        return None
    truth = workbench.located.fetch(entry.place)
    value = workbench.value(node.output[0])
    if truth is None or value is None:
        return None
    if truth.shape != value.shape or truth.dtype.kind != "f":
        return None
    return common_ratio(truth, value)


def common_ratio(truth: Array, value: Array) -> float | None:
    """The ratio of two arrays where it is the same in all elements that are not small; else None."""
    large = np.abs(value) > _SMALL_SHARE * np.abs(value).max(initial=0)
    if not large.any():
        return None
    ratios = truth[large] / value[large].astype(np.float64)
    if not np.isfinite(ratios).all():
        return None
    if np.ptp(ratios) > _SPREAD * abs(ratios.mean()):
        return None
    return float(np.median(ratios))


def _divisor(workbench: Workbench, ratio: float) -> int | None:
    """The size n for which the ratio is n / (n - 1), or the reverse."""
    sizes: set[int] = set()
    for array in workbench.scene.case.inputs.values():
        sizes.update((*array.shape, array.size))
    for entry in workbench.located.traced_values:
        sizes.update(int(size) for size in entry.sketch.shape)
    for n in sorted(sizes):
        if n < 2:
            continue
        unbiased = n / (n - 1)
        biased = (n - 1) / n
        if min(abs(ratio - unbiased), abs(ratio - biased)) < _SAME_DIVISOR * ratio:
            return n
    return None


def _module_factor(workbench: Workbench, node: onnx.NodeProto, ratio: float) -> float | None:
    """The number of the module, or the quotient of two, that is the ratio."""
    numbers = [number for number in module_numbers(workbench, node) if number]
    quotients = [a / b for a in numbers for b in numbers]
    for number in [*numbers, *quotients]:
        if abs(number - ratio) < _SAME_FACTOR * abs(ratio):
            return number
    return None
