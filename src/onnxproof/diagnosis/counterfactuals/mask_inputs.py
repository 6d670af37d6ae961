"""Inputs that are masks, and what they would be if they were ignored, inverted, or hid nothing in rows that hide all."""

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def is_mask(name: str, array: Array) -> bool:
    """Whether an input hides places: by its type, its name, or its values of minus infinity; lengths count."""
    if array.dtype.kind == "b":
        return True
    if array.dtype.kind == "i" and array.ndim == 1 and "len" in name.lower():
        return True
    if "mask" in name.lower():
        return True
    if array.dtype.kind != "f":
        return False
    wide = array.astype(np.float64)
    return bool(np.isneginf(wide).any())


def other_masks(mask: Array, inputs: Mapping[str, Array]) -> list[tuple[str, Array]]:
    """A mask as it is where it is not applied, with a word for each way."""
    if mask.ndim == 1 and mask.dtype.kind == "i":
        return [("ignored", full_lengths(mask, inputs))]
    return [("ignored", keep_all(mask)), ("inverted", invert(mask))]


def full_lengths(lengths: Array, inputs: Mapping[str, Array]) -> Array:
    """Every length at the most that the other inputs hold; unchanged where that is one step more, which a wrong comparison does, too."""
    longest = [
        array.shape[1]
        for array in inputs.values()
        if array.ndim > 1
        and array.shape[0] == lengths.shape[0]
        and array.shape[1] >= lengths.max(initial=0)
    ]
    full = np.full_like(lengths, max(longest, default=lengths.max(initial=0)))
    if (full - lengths).max(initial=0) > 1:
        return full
    return lengths


def keep_all(mask: Array) -> Array:
    """A mask that hides nothing: zeros that are added, or ones."""
    if mask.dtype.kind == "f":
        return np.zeros_like(mask)
    return np.ones_like(mask)


def invert(mask: Array) -> Array:
    """What is hidden is shown, and the reverse."""
    if mask.dtype.kind == "b":
        return ~mask
    if mask.dtype.kind == "f":
        return np.where(mask == 0, -np.inf, 0).astype(mask.dtype)
    return 1 - mask


def fill_empty_rows(mask: Array) -> Array:
    """The mask with rows that hide everything opened."""
    hidden = np.isneginf(mask) if mask.dtype.kind == "f" else mask == 0
    empty = hidden.all(axis=-1, keepdims=True)
    return np.where(empty, keep_all(mask), mask)
