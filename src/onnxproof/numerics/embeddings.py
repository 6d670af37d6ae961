"""Outputs that are embeddings: directions, not scores of classes. What counts is the angle, and who the nearest neighbour is."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_LEAST_WIDTH = 8
"""Elements of a row from which on it may be an embedding. Not measured."""
_UNIT = 1e-3
"""How far from one the length of a normalised row may be. Not measured."""
_LEAST_ROWS = 3
"""With two rows each is the other's neighbour, whatever they say."""
_MOST_ROWS = 1024
"""Rows that are compared with each other, since that grows with the square. Not measured."""


def is_embedding(reference: Array) -> bool:
    """True for rows of length one with negative elements: probabilities and one-hot rows have none, and logits are not normalised."""
    if reference.ndim < 2 or reference.shape[-1] < _LEAST_WIDTH or not reference.size:
        return False
    rows = reference.reshape(-1, reference.shape[-1])[:_MOST_ROWS].astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1)
    return bool((np.abs(lengths - 1) < _UNIT).all() and (rows < 0).any())


def retrieval(reference: Array, candidate: Array) -> float | None:
    """The share of rows whose nearest other row, by cosine, is the same on both sides; None where there are too few rows."""
    width = reference.shape[-1]
    rows = [side.reshape(-1, width)[:_MOST_ROWS] for side in (reference, candidate)]
    if len(rows[0]) < _LEAST_ROWS:
        return None
    nearest = [_nearest(side.astype(np.float64)) for side in rows]
    return float((nearest[0] == nearest[1]).mean())


def _nearest(rows: Array) -> Array:
    """The place of each row's nearest other row."""
    lengths = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
    cosines = (rows / lengths) @ (rows / lengths).T
    np.fill_diagonal(cosines, -np.inf)
    return np.asarray(cosines.argmax(1))
