"""Detectors whose rows are exchanged on near ties are faithful, and planted faults of detectors are told by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxproof
from bench.converters import detectors
from bench.converters.detectors import Settings
from onnxproof.options import Policy
from onnxproof.results import Verdict
from onnxproof.verification.detections import CaseRows, DetectionSets, open_sets

Array = np.ndarray[Any, Any]
CASES = ("example", "ordinary-0", "ordinary-1", "ordinary-2")
SORTING = frozenset({"TopK"})
NAMES = ("boxes", "scores", "labels")


def _verify(path: Path, settings: Settings | None = None) -> Any:
    return onnxproof.verify(
        detectors.detect,
        detectors.write(path / "detector.onnx", settings),
        detectors.example(),
        budget_s=20,
        explain=False,
        only=CASES,
    )


def _findings(proof: Any) -> dict[str, str]:
    return {finding.code: finding.what for finding in proof.findings}


def test_rows_that_are_exchanged_on_near_ties_are_no_alarm(tmp_path: Path) -> None:
    proof = _verify(tmp_path)
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    assert "rows changed places in" in _findings(proof)["detections"]
    precisions = [gap.detection_map for gap in proof.gaps if gap.output == "boxes"]
    assert precisions == [1.0] * len(CASES)
    assert all(gap.noise < 1e-5 for gap in proof.gaps if gap.output == "boxes")


@pytest.mark.parametrize(
    ("settings", "output", "words"),
    [
        (Settings(box_scale=1.0005), "boxes", "times the rounding noise"),
        (Settings(class_offset=1), "labels", "integers differ"),
        (Settings(dropped=1), "boxes", "the file lacks 1 of"),
        (Settings(overlap=0.6), "boxes", "that the reference lacks"),
        (Settings(least_score=0.45), "boxes", "the file lacks"),
        (Settings(most=2), "boxes", "the file lacks"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_planted_fault_is_told_by_its_output(
    tmp_path: Path, settings: Settings, output: str, words: str
) -> None:
    proof = _verify(tmp_path, settings)
    assert proof.verdict is Verdict.DIVERGED
    assert f"`{output}`" in proof.sentence()
    assert words in proof.sentence()


def test_another_order_is_a_drift_that_says_so(tmp_path: Path) -> None:
    proof = _verify(tmp_path, Settings(descending=0))
    assert proof.verdict is Verdict.DRIFT
    assert "the rows are in another order" in proof.sentence()


def _sets(*outputs: Array) -> tuple[DetectionSets, CaseRows]:
    sets = open_sets(NAMES, SORTING, Policy(), lambda: list(outputs))
    assert sets is not None
    rows = sets.open(list(outputs))
    assert rows is not None
    return sets, rows


BOXES = np.array([[0, 0, 2, 2], [4, 4, 6, 7], [1, 5, 3, 6]], np.float32)
SCORES = np.array([0.9, 0.7, 0.4], np.float32)
LABELS = np.array([1, 0, 1])


def _first(count: int) -> list[Array]:
    return [array[:count] for array in (BOXES, SCORES, LABELS)]


def test_a_row_that_the_reference_loses_itself_is_excused() -> None:
    sets, rows = _sets(BOXES, SCORES, LABELS)
    asked = []

    def ask_more() -> None:
        asked.append(rows.align(_first(2)))

    aligned = sets.align("case", rows, _first(2), ask_more)
    assert len(asked) == 1
    assert (aligned.excused, aligned.words) == (1, "")
    assert np.array_equal(aligned.outputs[0], BOXES)  # type: ignore[arg-type]
    assert "does not decide" in sets.findings()[0].what


def test_a_row_that_the_reference_never_loses_is_not() -> None:
    sets, rows = _sets(BOXES, SCORES, LABELS)
    aligned = sets.align("case", rows, _first(2), lambda: None)
    assert aligned.excused == 0
    assert aligned.words == "the file lacks 1 of 3 rows (class 1, score 0.4, box [1, 5, 3, 6])"
    assert aligned.outputs[0] is not None
    assert aligned.outputs[0].shape == (2, 4)


@pytest.mark.parametrize(("apart", "excused"), [(1e-7, 1), (1e-3, 0)])
def test_equal_scores_at_the_end_of_a_full_list_excuse_one_row_for_another(
    apart: float, excused: int
) -> None:
    sets, rows = _sets(BOXES, SCORES, LABELS)
    boxes = BOXES.copy()
    boxes[2] += 50
    scores = SCORES - np.array([0, 0, apart], np.float32)
    aligned = sets.align("case", rows, [boxes, scores, LABELS], lambda: None)
    assert aligned.excused == excused
    assert bool(aligned.words) is not bool(excused)


@pytest.mark.parametrize("undecided", [True, False])
def test_saturated_scores_excuse_a_whole_list_where_the_reference_keeps_none_of_it(
    undecided: bool,
) -> None:
    scores = np.ones(3, np.float32)
    other = [BOXES + 50, scores, LABELS]
    sets, rows = _sets(BOXES, scores, LABELS)

    def ask_more() -> None:
        if undecided:
            rows.align([BOXES - 50, scores, LABELS])

    aligned = sets.align("case", rows, other, ask_more)
    assert (aligned.excused, aligned.tied, bool(aligned.words)) == (
        3 * undecided,
        undecided,
        not undecided,
    )


def test_no_sets_without_an_operator_that_sorts() -> None:
    outputs = [BOXES, SCORES, LABELS]
    assert open_sets(NAMES, frozenset({"MatMul"}), Policy(), lambda: outputs) is None
    assert open_sets(NAMES, frozenset({"EfficientNMS_TRT"}), Policy(), lambda: outputs)
