"""Embeddings are told from scores, and judged by who is near whom."""

import numpy as np
import pytest

from onnxproof.numerics.embeddings import is_embedding, retrieval
from onnxproof.numerics.measure import GapLabel, Noise, measure
from onnxproof.quantization.scoring import compare

RNG = np.random.default_rng(0)


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


DIRECTIONS = unit(RNG.standard_normal((16, 32)))
LOGITS = RNG.standard_normal((16, 32)).astype(np.float32)
PROBABILITIES = (np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(
    ("output", "embedding"),
    [
        (DIRECTIONS, True),
        (DIRECTIONS.reshape(4, 4, 32), True),
        (LOGITS, False),
        (PROBABILITIES, False),
        (np.eye(16, 32, dtype=np.float32), False),
        (DIRECTIONS[0], False),
        (DIRECTIONS[:0], False),
    ],
)
def test_rows_of_length_one_with_signs_are_embeddings(output: np.ndarray, embedding: bool) -> None:
    assert is_embedding(output) is embedding


def test_a_turn_of_the_whole_space_keeps_every_neighbour_and_no_best_class() -> None:
    turned = DIRECTIONS @ np.linalg.qr(RNG.standard_normal((32, 32)))[0].astype(np.float32)
    assert (turned.argmax(-1) == DIRECTIONS.argmax(-1)).mean() < 0.5
    assert retrieval(DIRECTIONS, turned) == 1.0


def test_rows_in_another_order_lose_their_neighbours() -> None:
    found = retrieval(DIRECTIONS, DIRECTIONS[::-1])
    assert found is not None and found < 0.5


def test_two_rows_say_nothing() -> None:
    assert retrieval(DIRECTIONS[:2], DIRECTIONS[:2]) is None


def test_a_gap_of_embeddings_has_no_best_class() -> None:
    gap = measure(GapLabel(), reference=DIRECTIONS, truth=None, candidate=DIRECTIONS, noise=Noise())
    assert (gap.top1, gap.retrieval) == (None, 1.0)
    gap = measure(GapLabel(), reference=LOGITS, truth=None, candidate=LOGITS, noise=Noise())
    assert (gap.top1, gap.retrieval) == (1.0, None)


def test_neighbours_are_looked_for_in_all_batches() -> None:
    batches = [[row[None]] for row in DIRECTIONS]
    score = compare(batches, batches)
    assert (score.agreement, score.retrieval) == (None, 1.0)
