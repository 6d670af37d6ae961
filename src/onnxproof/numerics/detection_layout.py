"""Which outputs hold a detector's boxes, scores and classes: told by shapes, values and names.

1. Separate outputs: boxes of four numbers, scores of the same rows that go down from row to row (or say so by name), classes of integers.
2. One output: rows of six or seven numbers, among them a column of scores that goes down and one of integers.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxproof.numerics.measure import is_float

Array = np.ndarray[Any, Any]
_BOXES = re.compile(r"box|det|rect|roi", re.IGNORECASE)
_SCORES = re.compile(r"score|conf|prob", re.IGNORECASE)
_CLASSES = re.compile(r"label|class|cls|categor", re.IGNORECASE)
_COLUMNS = {
    6: ((0, 4, 5),),
    7: ((1, 6, 5), (1, 5, 6), (3, 2, 1), (0, 4, 6), (0, 5, 6)),
}
"""Of rows in one output, by their length: where the box begins, the score, the class. In the order of how usual they are: corners first; an image's number
before the box; the detection layer of SSD; score after an objectness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An output, or some columns of it."""

    place: int
    columns: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where boxes, scores and classes are."""

    boxes: Part
    scores: Part
    classes: Part | None
    places: tuple[int, ...]
    """Outputs with a row for each box, those of masks and keypoints too."""
    axis: int
    """The axis of the rows."""
    centred: bool
    """Boxes are given by centre and size, not by two corners."""

    @property
    def parts(self) -> list[Part]:
        """Boxes, scores, and classes where there are some."""
        parts = [self.boxes, self.scores]
        if self.classes is not None:
            parts.append(self.classes)
        return parts


def find(names: Sequence[str], outputs: Sequence[Array]) -> Layout | None:
    """The layout of a detector's answer; None where it is none, or has too few rows to tell and no telling names."""
    return next(_separate(names, outputs), None) or next(_packed(outputs), None)


def _separate(names: Sequence[str], outputs: Sequence[Array]) -> Iterator[Layout]:
    for place, boxes in enumerate(outputs):
        if not is_float(boxes) or boxes.ndim not in (2, 3) or boxes.shape[-1] != 4:
            continue
        scores = _find_scores(names, outputs, place)
        if scores is None:
            continue
        rows = boxes.shape[:-1]
        alike = [n for n, array in enumerate(outputs) if array.shape[: len(rows)] == rows]
        labels = [n for n in alike if n != scores.place and _are_classes(outputs[n], rows)]
        yield Layout(
            boxes=Part(place=place),
            scores=scores,
            classes=_first_named(names, _CLASSES, labels),
            places=tuple(alike),
            axis=len(rows) - 1,
            centred=not _has_corners(boxes),
        )


def _find_scores(names: Sequence[str], outputs: Sequence[Array], boxes: int) -> Part | None:
    rows = outputs[boxes].shape[:-1]
    places = [
        place
        for place, array in enumerate(outputs)
        if place != boxes and _are_scores(array, rows, (names[boxes], names[place]))
    ]
    return _first_named(names, _SCORES, places)


def _first_named(
    names: Sequence[str], pattern: re.Pattern[str], places: Sequence[int]
) -> Part | None:
    """The first of these outputs, one with a telling name before others."""
    if not places:
        return None
    return Part(place=min(places, key=lambda place: pattern.search(names[place]) is None))


def _are_scores(array: Array, rows: tuple[int, ...], names: tuple[str, str]) -> bool:
    """Scores of these rows: sorted ones, or ones that are called so beside boxes that are called boxes."""
    if not is_float(array) or array.shape not in (rows, (*rows, 1)):
        return False
    if _BOXES.search(names[0]) and _SCORES.search(names[1]):
        return True
    return _goes_down(array.reshape(rows))


def _goes_down(scores: Array) -> bool:
    """Sorted from the highest to the lowest, with at least two that differ."""
    if scores.shape[-1] < 2:
        return False
    steps = np.diff(scores.astype(np.float64), axis=-1)
    return bool((steps <= 0).all() and (steps < 0).any())


def _are_classes(array: Array, rows: tuple[int, ...]) -> bool:
    if array.shape not in (rows, (*rows, 1)) or array.dtype.kind == "b":
        return False
    return array.dtype.kind in "iu" or _are_whole(array)


def _are_whole(array: Array) -> bool:
    values = array.astype(np.float64)
    return bool(np.isfinite(values).all() and (values == np.round(values)).all())


def _has_corners(boxes: Array) -> bool:
    """Whether no box ends before it begins."""
    return bool((boxes[..., 2:] >= boxes[..., :2]).all())


def _packed(outputs: Sequence[Array]) -> Iterator[Layout]:
    for place, array in enumerate(outputs):
        if not is_float(array) or array.ndim not in (2, 3, 4):
            continue
        for box, score, label in _COLUMNS.get(array.shape[-1], ()):
            scores = array[..., score]
            if not _goes_down(scores) or not _are_whole(array[..., label]):
                continue
            if scores.min() < 0 or scores.max() > 1:
                continue
            yield Layout(
                boxes=Part(place=place, columns=(box, box + 4)),
                scores=Part(place=place, columns=(score, score + 1)),
                classes=Part(place=place, columns=(label, label + 1)),
                places=(place,),
                axis=array.ndim - 2,
                centred=not _has_corners(array[..., box : box + 4]),
            )
