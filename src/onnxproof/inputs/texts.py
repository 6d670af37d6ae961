"""Inputs of strings: which ones mean something to the models."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from onnxproof.inputs.decisions import Decisions
from onnxproof.inputs.space import Array, Role, Slot, Space
from onnxproof.numerics import port_values
from onnxproof.onnxmodel.onnx_file import OnnxFile, constants, walk
from onnxproof.results import InputInfo

_TABLES = ("cats_", "keys_", "pool_", "stopwords")
"""Attributes of operators that hold what is looked up."""
_MOST_TEXTS = 1024
"""Strings of an input that are drawn from (not measured)."""


def text_slot(info: InputInfo, example: Array, file: OnnxFile) -> Slot:
    """An input of strings with those of the example and of the graph."""
    known = [str(text) for text in example.reshape(-1)]
    return Slot(
        info=info, role=Role.TEXT, example=example, texts=_distinct(known, file_texts(file))
    )


def with_decisions(space: Space, decisions: Decisions) -> Space:
    """The space with what the reference decides by: its categories are strings that mean something, its constants are numbers to be tried."""
    categories = [value for values in decisions.categories.values() for value in values]
    known = [*decisions.texts, *(value for value in categories if isinstance(value, str))]
    slots = []
    for slot in space.slots:
        if slot.role is Role.TEXT:
            slot = replace(slot, texts=_distinct(slot.texts, known))
        slots.append(slot)
    return replace(
        space,
        slots=tuple(slots),
        decisions=decisions,
        constants=_with_numbers(space.constants, decisions.constants),
        bounds=_with_numbers(space.bounds, decisions.constants),
    )


def _with_numbers(numbers: tuple[float, ...], more: Iterable[float]) -> tuple[float, ...]:
    """The numbers, and those of the others that are no number of the file in float32: 0.7 is written into a file as 0.699999988."""
    known = {float(np.float32(number)) for number in numbers}
    return numbers + tuple(number for number in more if float(np.float32(number)) not in known)


def _distinct(texts: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*texts, *more]))[:_MOST_TEXTS] or ("",)


def file_texts(file: OnnxFile) -> list[str]:
    """The strings that a graph compares with or looks up: of encoders and of constants."""
    texts: list[str] = []
    for node in walk(file.model):
        for attribute in node.attribute:
            if attribute.strings and (attribute.name.startswith(_TABLES) or not node.domain):
                texts += [text.decode("utf-8", "replace") for text in attribute.strings]
    for array in constants(file, largest=_MOST_TEXTS).values():
        if array.dtype.kind in "OU":
            texts += [port_values.plain(text).item() for text in array.reshape(-1)]
    return texts
