"""Scores of outputs: decibels of the worst output, agreement of the best class."""

import math

import numpy as np
import pytest

from onnxproof.quantization.scoring import compare

SCORES = np.asarray([[1.0, 0.0], [0.0, 1.0]], np.float32)


def test_equal_outputs_have_no_error() -> None:
    score = compare([[SCORES]], [[SCORES]])
    assert (score.sqnr_db, score.agreement) == (math.inf, 1.0)


def test_the_worst_output_counts() -> None:
    off = SCORES + np.float32(0.1)
    score = compare([[SCORES, SCORES]], [[SCORES, off]])
    assert score.sqnr_db == pytest.approx(10 * math.log10(2 / 0.04), abs=1e-3)


def test_another_best_class_lowers_the_agreement() -> None:
    assert compare([[SCORES]], [[SCORES[::-1]]]).agreement == 0.0


def test_what_is_not_finite_scores_nothing() -> None:
    assert compare([[SCORES]], [[SCORES * np.nan]]).sqnr_db == -math.inf


def test_integers_agree_element_by_element() -> None:
    score = compare([[np.asarray([1, 2, 3, 4])]], [[np.asarray([1, 2, 3, 5])]])
    assert (score.sqnr_db, score.agreement) == (math.inf, 0.75)
