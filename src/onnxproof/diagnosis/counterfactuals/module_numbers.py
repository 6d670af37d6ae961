"""Numbers that may stand in the place of a wrong one: the module's around a located node, and the file's at it."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.counterfactuals.workbench import Workbench

_NEAR = 6
"""Calls before and after a located one whose arguments count as near. Not measured."""
_MOST_ENTRIES = 200
"""Calls that are read where none is near. Not measured."""
_MOST_NUMBERS = 48
_MOST_FILE_NUMBERS = 12
"""Numbers of the module and of the file that are tried. Not measured."""
_FEW_ELEMENTS = 4
"""Elements of a constant whose numbers count as those of its node. Not measured."""
_INSIDE_FUNCTIONS = (
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
_EPSILONS = (1e-5, 1e-6, 1e-12, 1e-8)


def written_numbers(workbench: Workbench, node: onnx.NodeProto) -> list[float]:
    """Numbers that the module's own operation was called with, and those of the operations around it, as they are written."""
    arguments = _near_arguments(workbench, node)
    return list(dict.fromkeys(n for argument in arguments for n in _numbers_in(argument)))


def module_numbers(workbench: Workbench, node: onnx.NodeProto) -> list[float]:
    """Those numbers, what a formula may have made of them, and usual constants of formulas."""
    variations: list[float] = []
    for argument in _near_arguments(workbench, node):
        numbers = _numbers_in(argument)
        if numbers:
            numbers.append(float(np.prod(numbers)))
        for number in numbers:
            variations += _variations(number)
    return list(dict.fromkeys([*variations[:_MOST_NUMBERS], *_INSIDE_FUNCTIONS, *_EPSILONS]))


def _near_arguments(workbench: Workbench, node: onnx.NodeProto) -> list[Any]:
    """The arguments of the module's calls around the one that a node stands for, its own first."""
    entries = workbench.located.traced_values
    entry = workbench.counterpart(node)
    near = entries[:_MOST_ENTRIES]
    if entry is not None:
        here = entry.place
        close = [e for e in entries if abs(e.place - here) <= _NEAR]
        near = sorted(close, key=lambda e: abs(e.place - here)) or near
    return [argument for e in near for argument in e.arguments.values()]


def _numbers_in(argument: Any) -> list[float]:
    """The numbers of an argument."""
    values = argument if isinstance(argument, list | tuple) else [argument]
    return [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]


def _variations(number: float) -> Iterator[float]:
    """A number, and what a formula may have made of it: negative, inverse, root and inverse root; zero where there is none."""
    yield number
    yield -number
    if number > 0:
        yield from (1 / number, number**0.5, 1 / number**0.5)
    elif number:
        yield from (1 / number, 0.0, 0.0)
    else:
        yield from (0.0, 0.0, 0.0)


def file_numbers(workbench: Workbench) -> tuple[list[float], list[list[int]]]:
    """The numbers and the lists of integers of the located nodes: attributes and small constants."""
    numbers: list[float] = []
    lists: list[list[int]] = []
    for node in workbench.nodes_and_producers:
        for attribute in node.attribute:
            value = onnx.helper.get_attribute_value(attribute)
            if isinstance(value, int | float):
                numbers.append(float(value))
            elif isinstance(value, list) and value and isinstance(value[0], int):
                lists += [list(value), list(value[: len(value) // 2])]
        numbers += _small_constants(workbench, node)
    finite = [number for number in dict.fromkeys(numbers) if np.isfinite(number)]
    return finite[:_MOST_FILE_NUMBERS], lists


def _small_constants(workbench: Workbench, node: onnx.NodeProto) -> Iterator[float]:
    for _, _, array in workbench.constants(node):
        if array.size <= _FEW_ELEMENTS and array.dtype.kind in "fi":
            yield from (float(number) for number in array.reshape(-1))
