"""The text of a rollout: which token follows, and where two texts part."""

import numpy as np

from onnxproof.verification.rollout.language import LanguageMeter


def logits(*tokens: int) -> np.ndarray:
    """One row for each token, which has the largest logit."""
    rows = np.zeros((len(tokens), 5))
    rows[np.arange(len(tokens)), tokens] = 3.0
    return rows


def test_the_text_that_is_shown_is_the_one_that_parts() -> None:
    meter = LanguageMeter()
    meter.choose(logits(1, 2), logits(1, 2), noise=1e-6)
    meter.choose(logits(3, 4), logits(3, 0), noise=1e-6)
    meter.choose(logits(1, 1), logits(2, 2), noise=1e-6)
    assert (meter.first_apart, meter.apart_by_tie, meter.apart_row) == (1, False, 1)
    assert meter.tokens == [(2, 2), (4, 0)]


def test_a_token_that_noise_decides_is_a_tie() -> None:
    meter = LanguageMeter()
    near = logits(1) + np.array([[0, 0, 3.0 - 1e-9, 0, 0]])
    meter.choose(near, logits(2), noise=1e-6)
    assert (meter.first_apart, meter.apart_by_tie) == (0, True)
