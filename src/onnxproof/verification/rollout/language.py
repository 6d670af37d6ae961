"""What a difference between logits means for the text: divergence, agreement, and the first token apart."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
FEWEST_TOKENS = 16
"""Numbers of a last axis that are taken for scores of tokens (not measured)."""
_MOST_TOKENS = 256
"""Tokens that are kept to be shown."""


@dataclass(slots=True)
class LanguageMeter:
    """Sums over all places of a rollout; holds no logits."""

    places: int = 0
    same: int = 0
    tied: int = 0
    kl: float = 0.0
    kl_noise: float = 0.0
    generated: int = 0
    first_apart: int | None = None
    apart_by_tie: bool | None = None
    apart_row: int = 0
    """The row of the batch whose text parts first."""
    _chosen: list[tuple[Array, Array]] = field(default_factory=list)

    @property
    def tokens(self) -> list[tuple[int, int]]:
        """The tokens of that row, reference and candidate, up to where they part."""
        return [
            (int(one[self.apart_row]), int(other[self.apart_row])) for one, other in self._chosen
        ]

    def add(
        self, reference: Array, truth: Array, candidate: Array, noise: float
    ) -> tuple[float, float] | None:
        """Logits of one call, places by vocabulary; `noise` is how far apart rounding may put two of them. Gives KL and agreement of the call."""
        finite = all(np.isfinite(logits).all() for logits in (reference, truth, candidate))
        if not finite or not len(reference):
            return None
        chosen, other = reference.argmax(-1), candidate.argmax(-1)
        same = chosen == other
        rows = np.arange(len(reference))
        margin = reference[rows, chosen] - reference[rows, other]
        tied = ~same & (margin <= noise)
        kl = divergence(truth, candidate)
        self.places += len(same)
        self.same += int(same.sum())
        self.tied += int(tied.sum())
        self.kl += float(kl.sum())
        self.kl_noise += float(divergence(truth, reference).sum())
        return float(kl.mean()), float(same.mean())

    def choose(self, reference: Array, candidate: Array, noise: float) -> None:
        """The logits of the last real place of every row: which token follows."""
        if not (np.isfinite(reference).all() and np.isfinite(candidate).all()):
            return
        chosen, other = reference.argmax(-1), candidate.argmax(-1)
        if self.first_apart is None and len(self._chosen) < _MOST_TOKENS:
            self._chosen.append((chosen, other))
        differ = np.flatnonzero(chosen != other)
        if differ.size and self.first_apart is None:
            margins = reference[differ, chosen[differ]] - reference[differ, other[differ]]
            self.first_apart = self.generated
            self.apart_row = int(differ[0])
            self.apart_by_tie = bool((margins <= noise).all())
        self.generated += 1

    def share(self, count: float) -> float | None:
        """A sum as a mean over all places; None where there was none."""
        if not self.places:
            return None
        return count / self.places


def scores_next_token(inputs: Mapping[str, Array], scores: Array) -> bool:
    """Whether an output has scores of tokens, texts by places by tokens, beside an input of token ids, texts by places."""
    if scores.ndim != 3 or scores.shape[2] < FEWEST_TOKENS or scores.dtype.kind != "f":
        return False
    return any(
        array.dtype.kind in "iu"
        and array.shape == scores.shape[:2]
        and int(array.min()) >= 0
        and int(array.max()) < scores.shape[2]
        for array in inputs.values()
        if array.size
    )


def divergence(truth: Array, other: Array) -> Array:
    """KL(truth, other) of the next token in nats, place by place."""
    p, q = log_softmax(truth), log_softmax(other)
    return np.asarray(np.maximum((np.exp(p) * (p - q)).sum(-1), 0.0))


def log_softmax(logits: Array) -> Array:
    """Log-probabilities in float64."""
    wide = logits.astype(np.float64)
    shifted = wide - wide.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))
