"""Detections as sets: which outputs hold them, which row is which, and how well two answers agree."""

from typing import Any

import numpy as np
import pytest

from onnxproof.numerics import detections
from onnxproof.numerics.detection_layout import Layout, Part, find
from onnxproof.numerics.detections import Rows

Array = np.ndarray[Any, Any]
BOXES = np.array([[0, 0, 2, 2], [4, 4, 6, 7], [1, 5, 3, 6]], np.float32)
SCORES = np.array([0.9, 0.7, 0.4], np.float32)
LABELS = np.array([1, 0, 1])
ROWS = Rows(boxes=BOXES.astype(float), scores=SCORES.astype(float), classes=LABELS.astype(float))


def _taken(rows: Rows, *places: int) -> Rows:
    kept = list(places)
    return Rows(boxes=rows.boxes[kept], scores=rows.scores[kept], classes=rows.classes[kept])


def _layout(*outputs: Array, names: str = "a b c d") -> Layout | None:
    return find(names.split()[: len(outputs)], outputs)


def test_separate_outputs_are_told_by_sorted_scores() -> None:
    layout = _layout(LABELS, BOXES, SCORES, np.zeros((3, 5, 5), np.float32))
    assert layout is not None
    assert (layout.boxes, layout.scores) == (Part(place=1), Part(place=2))
    assert layout.classes == Part(place=0)
    assert layout.places == (0, 1, 2, 3)
    assert layout.axis == 0


def test_scores_that_are_not_sorted_are_told_by_names_alone() -> None:
    assert _layout(BOXES, SCORES[::-1]) is None
    assert _layout(BOXES, SCORES[::-1], names="boxes scores") is not None


@pytest.mark.parametrize(
    "outputs",
    [
        (BOXES,),
        (BOXES, np.stack([SCORES, SCORES], -1)),
        (BOXES, LABELS),
        (BOXES[:1], SCORES[:1]),
        (BOXES[:, :3], SCORES),
    ],
)
def test_other_outputs_are_no_detections(outputs: tuple[Array, ...]) -> None:
    assert _layout(*outputs) is None


def test_rows_in_one_output_are_told_by_their_columns() -> None:
    packed = np.concatenate([BOXES, SCORES[:, None], LABELS[:, None]], -1)[None].astype(np.float32)
    layout = _layout(packed)
    assert layout is not None
    assert layout.axis == 1
    (rows,) = detections.read(layout, [packed]) or []
    assert np.array_equal(rows.classes, LABELS)
    assert np.array_equal(rows.boxes, BOXES)
    numbered = np.concatenate(
        [np.zeros((3, 1)), BOXES, LABELS[:, None], SCORES[:, None]], -1
    ).astype(np.float32)
    layout = _layout(numbered)
    assert layout is not None
    assert layout.scores == Part(place=0, columns=(6, 7))


def test_boxes_by_centre_and_size_become_corners() -> None:
    centred = np.array([[5, 5, 2, 4], [9, 9, 2, 2]], np.float32)
    layout = _layout(centred, SCORES[:2])
    assert layout is not None
    assert layout.centred
    (rows,) = detections.read(layout, [centred, SCORES[:2]]) or []
    assert rows.boxes[0].tolist() == [4, 3, 6, 7]


def test_rows_in_another_order_find_their_partners() -> None:
    matching = detections.match(ROWS, _taken(ROWS, 2, 0, 1))
    assert matching.partners.tolist() == [1, 2, 0]
    assert matching.missing == () == matching.extra
    assert detections.exchanged(ROWS, matching) == pytest.approx(0.5)


def test_a_row_of_another_class_is_a_partner_only_of_last_resort() -> None:
    twice = Rows(boxes=ROWS.boxes[[0, 0]], scores=ROWS.scores[[0, 0]], classes=np.array([3.0, 1.0]))
    assert detections.match(ROWS, twice).partners.tolist() == [1, -1, -1]
    alone = twice.row(0)
    matching = detections.match(ROWS, alone)
    assert matching.missing == (0, 1, 2)
    assert detections.pair_rest(matching, ROWS, alone, [0], [0]).partners.tolist() == [0, -1, -1]


def test_a_dropped_row_is_missing_and_a_new_one_is_extra() -> None:
    matching = detections.match(ROWS, _taken(ROWS, 0, 2))
    assert matching.missing == (1,)
    other = detections.match(_taken(ROWS, 0, 2), ROWS)
    assert other.extra == (1,)


def test_rows_are_arranged_and_what_lacks_stays_the_wanted_row() -> None:
    layout = _layout(BOXES, SCORES, LABELS)
    assert layout is not None
    other = [array[[2, 0]] + 0 for array in (BOXES, SCORES, LABELS)]
    rows = detections.read(layout, other)
    assert rows is not None
    matchings = [detections.match(ROWS, rows[0])]
    arranged = detections.arrange(layout, [BOXES, SCORES, LABELS], other, matchings)
    for array, wanted in zip(arranged, (BOXES, SCORES, LABELS), strict=True):
        assert array is not None
        assert np.array_equal(array, wanted)


def test_what_is_not_finite_is_not_read() -> None:
    layout = _layout(BOXES, SCORES)
    assert layout is not None
    assert detections.read(layout, [BOXES + np.float32(np.nan), SCORES]) is None
    assert detections.read(layout, [BOXES[:2], SCORES]) is None
    assert detections.read(layout, [None, SCORES]) is None


def test_equal_boxes_without_an_area_overlap() -> None:
    point = np.array([[1.0, 1, 1, 1]])
    assert detections.overlaps(point, point).tolist() == [[1.0]]
    assert detections.overlaps(point, point + 1).tolist() == [[0.0]]


def test_agreement_is_one_for_the_same_rows_and_falls_with_every_loss() -> None:
    agreement = detections.mean_average_precision
    assert agreement([ROWS], [_taken(ROWS, 2, 1, 0)]) == 1.0
    assert agreement([ROWS], [_taken(ROWS, 0, 2)]) == pytest.approx(0.5)  # a class of two is lost
    wider = Rows(boxes=ROWS.boxes * [1, 1, 1.1, 1.1], scores=ROWS.scores, classes=ROWS.classes)
    assert 0.3 < agreement([ROWS], [wider]) < 1.0
    empty = _taken(ROWS)
    assert agreement([empty], [empty]) == 1.0
    assert agreement([empty], [ROWS]) == 0.0
    assert agreement([ROWS], [empty]) == 0.0
