"""The rows of a detector as sets: two answers are matched by overlap, whatever the order of their rows.

1. `match`: rows of one class whose boxes overlap, the most alike first.
2. `pair_rest`: of what is left, rows whose boxes overlap, whatever their class (a class that changed); then the others in order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxproof.numerics.detection_layout import Layout, Part

Array = np.ndarray[Any, Any]
LEAST_OVERLAP = 0.5
"""Boxes that overlap by less are two objects: the lower of COCO's thresholds."""
THRESHOLDS = tuple(float(value) for value in np.arange(0.5, 1.0, 0.05))
"""COCO's thresholds of overlap."""
MOST_ROWS = 2048
"""Rows of an image beyond which nothing is matched: the overlaps of two answers would take more than 32 MB. Not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What was detected in one image: boxes by their corners."""

    boxes: Array
    scores: Array
    classes: Array

    def __len__(self) -> int:
        return len(self.scores)

    def row(self, place: int) -> "Rows":
        """One of them alone."""
        kept = slice(place, place + 1)
        return Rows(boxes=self.boxes[kept], scores=self.scores[kept], classes=self.classes[kept])


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """Which row of another answer is which row of the wanted one."""

    partners: Array
    """For each wanted row the place of its partner, or -1."""
    extra: tuple[int, ...]
    """Rows of the other answer that are nobody's partner."""

    @property
    def missing(self) -> tuple[int, ...]:
        """Wanted rows without a partner."""
        return tuple(int(place) for place in np.flatnonzero(self.partners < 0))


def read(layout: Layout, outputs: Sequence[Array | None]) -> list[Rows] | None:
    """The rows of every image; None where they can't be read as such, or are not finite, or are too many."""
    shape = _shape_of_rows(layout, outputs)
    if shape is None or shape[-1] > MOST_ROWS:
        return None
    boxes = _values(outputs, layout.boxes, (*shape, 4))
    scores = _values(outputs, layout.scores, shape)
    classes: Array | None = np.zeros(shape)
    if layout.classes is not None:
        classes = _values(outputs, layout.classes, shape)
    if boxes is None or scores is None or classes is None:
        return None
    if not (np.isfinite(boxes).all() and np.isfinite(scores).all()):
        return None
    sizes = (int(np.prod(shape[:-1], dtype=int)), shape[-1])
    corners = _corners(boxes.reshape(*sizes, 4), centred=layout.centred)
    images = zip(corners, scores.reshape(sizes), classes.reshape(sizes), strict=True)
    return [Rows(boxes=box, scores=score, classes=label) for box, score, label in images]


def _shape_of_rows(layout: Layout, outputs: Sequence[Array | None]) -> tuple[int, ...] | None:
    """The images and their rows; None where the outputs differ in them."""
    shapes: set[tuple[int, ...]] = set()
    for part in layout.parts:
        array = outputs[part.place]
        if array is None or array.ndim <= layout.axis:
            return None
        shapes.add(array.shape[: layout.axis + 1])
    return shapes.pop() if len(shapes) == 1 else None


def _values(outputs: Sequence[Array | None], part: Part, shape: tuple[int, ...]) -> Array | None:
    """A part of an output in float64; None where its shape is another."""
    array = outputs[part.place]
    assert array is not None
    if part.columns is not None:
        array = array[..., slice(*part.columns)]
    if array.size != int(np.prod(shape, dtype=int)):
        return None
    return array.reshape(shape).astype(np.float64)


def _corners(boxes: Array, *, centred: bool) -> Array:
    if not centred:
        return boxes
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    return np.concatenate([centre - half, centre + half], -1)


def overlaps(one: Array, other: Array) -> Array:
    """Intersection over union of every box of one with every box of the other; equal boxes without an area overlap wholly.

    >>> overlaps(np.array([[0, 0, 2, 2]]), np.array([[0, 0, 2, 1], [5, 5, 6, 6]])).tolist()
    [[0.5, 0.0]]
    """
    low = np.maximum(one[:, None, :2], other[None, :, :2])
    high = np.minimum(one[:, None, 2:], other[None, :, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=-1)
    union = _areas(one)[:, None] + _areas(other)[None, :] - shared
    equal = np.isclose(one[:, None], other[None], rtol=1e-5, atol=1e-6).all(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(union > 0, shared / union, 0.0)
    return np.where(equal, np.maximum(share, equal), share)


def _areas(boxes: Array) -> Array:
    sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 0)
    return np.asarray(sides[:, 0] * sides[:, 1])


def match(wanted: Rows, other: Rows) -> Matching:
    """Step 1: partners of the same class."""
    partners = np.full(len(wanted), -1)
    same_class = wanted.classes[:, None] == other.classes[None, :]
    overlap = np.where(same_class, overlaps(wanted.boxes, other.boxes), 0.0)
    return _with_partners(
        Matching(partners=partners, extra=tuple(range(len(other)))), overlap, (wanted, other)
    )


def pair_rest(
    matching: Matching, wanted: Rows, other: Rows, missing: Sequence[int], extra: Sequence[int]
) -> Matching:
    """Step 2 for some of the rows that have no partner; there are as many of one side as of the other."""
    overlap = np.zeros((len(wanted), len(other)))
    chosen = np.ix_(list(missing), list(extra))
    overlap[chosen] = overlaps(wanted.boxes[list(missing)], other.boxes[list(extra)])
    paired = _with_partners(matching, overlap, (wanted, other))
    partners = paired.partners.copy()
    rest = [place for place in missing if partners[place] < 0]
    partners[rest] = [place for place in extra if place in paired.extra]
    return Matching(partners=partners, extra=())


def _with_partners(matching: Matching, overlap: Array, sides: tuple[Rows, Rows]) -> Matching:
    """The matching with partners for rows that overlap, the most alike first."""
    partners = matching.partners.copy()
    free = set(matching.extra)
    rows, columns = np.nonzero(overlap >= LEAST_OVERLAP)
    apart = np.abs(sides[0].scores[rows] - sides[1].scores[columns])
    for place in np.argsort(1 - overlap[rows, columns] + apart, kind="stable"):
        row, column = int(rows[place]), int(columns[place])
        if partners[row] < 0 and column in free:
            partners[row] = column
            free.remove(column)
    return Matching(partners=partners, extra=tuple(sorted(free)))


def arrange(
    layout: Layout,
    wanted: Sequence[Array],
    other: Sequence[Array | None],
    matchings: Sequence[Matching],
) -> list[Array | None]:
    """The other answer's rows in the order of the wanted one; where it has none, the wanted row itself."""
    arranged = list(other)
    for place in layout.places:
        array, own = other[place], wanted[place]
        if array is None or array.shape[layout.axis + 1 :] != own.shape[layout.axis + 1 :]:
            continue
        if array.shape[: layout.axis] != own.shape[: layout.axis]:
            continue
        rest = own.shape[layout.axis + 1 :]
        count = own.shape[layout.axis]
        images = array.reshape(len(matchings), array.shape[layout.axis], *rest)
        rows = own.reshape(len(matchings), count, *rest).astype(array.dtype)
        for image, matching in enumerate(matchings):
            has_partner = matching.partners >= 0
            rows[image][has_partner] = images[image][matching.partners[has_partner]]
        arranged[place] = rows.reshape(own.shape)
    return arranged


def exchanged(wanted: Rows, matching: Matching) -> float:
    """The largest difference in score between two rows that changed their order; 0 where none did, or only equal ones.

    >>> rows = Rows(boxes=np.zeros((2, 4)), scores=np.array([0.5, 0.25]), classes=np.zeros(2))
    >>> exchanged(rows, Matching(partners=np.array([1, 0]), extra=()))
    0.25
    """
    kept = np.flatnonzero(matching.partners >= 0)
    places, scores = matching.partners[kept], wanted.scores[kept]
    turned = places[:, None] > places[None, :]
    turned &= kept[:, None] < kept[None, :]
    apart = np.abs(scores[:, None] - scores[None, :])
    return float(np.max(apart, where=turned, initial=0.0))


def mean_average_precision(wanted: Sequence[Rows], other: Sequence[Rows]) -> float:
    """COCO's mean over thresholds and classes, the wanted rows in the place of a ground truth; 1 where both are empty."""
    classes = sorted({float(label) for rows in wanted for label in rows.classes})
    if not classes:
        return float(not any(len(rows) for rows in other))
    shared = [overlaps(one.boxes, two.boxes) for one, two in zip(wanted, other, strict=True)]
    precisions = [
        _average_precision(wanted, other, shared, label, threshold)
        for label in classes
        for threshold in THRESHOLDS
    ]
    return float(np.mean(precisions))


def _average_precision(
    wanted: Sequence[Rows],
    other: Sequence[Rows],
    shared: Sequence[Array],
    label: float,
    threshold: float,
) -> float:
    """The area under precision by recall of one class at one threshold."""
    found: list[tuple[float, bool]] = []
    total = 0
    for one, two, overlap in zip(wanted, other, shared, strict=True):
        free = one.classes == label
        total += int(free.sum())
        for place in np.argsort(-two.scores, kind="stable"):
            if two.classes[place] != label:
                continue
            best = int(np.argmax(np.where(free, overlap[:, place], -1.0)))
            hit = bool(free[best] and overlap[best, place] >= threshold)
            free[best] &= not hit
            found.append((float(two.scores[place]), hit))
    found.sort(key=lambda item: -item[0])
    hits = np.array([hit for _, hit in found], float)
    if not hits.size:
        return 0.0
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float((envelope * hits).sum() / total)
