"""What two models write after the same beginning: rows for the page, and a line for people."""

from collections.abc import Sequence
from typing import Any

from onnxproof.results.blocks import TextPair


def row(pair: TextPair) -> dict[str, Any]:
    """What both have in common, and how each goes on; a decoder may spell the common part otherwise, then each text stands whole."""
    same = pair.same
    if not (pair.reference.startswith(same) and pair.candidate.startswith(same)):
        same = ""
    count = pair.tokens if pair.first_apart is None else pair.first_apart
    return {
        "prompt": pair.prompt,
        "same": same,
        "reference": pair.reference[len(same) :],
        "candidate": pair.candidate[len(same) :],
        "count": f"{count} of {pair.tokens}",
    }


def summary(pairs: Sequence[TextPair]) -> str:
    """How far the texts go together; empty where none was written."""
    if not pairs:
        return ""
    apart = [pair.first_apart for pair in pairs if pair.first_apart is not None]
    words = (
        f"{len(pairs) - len(apart)} of {len(pairs)} texts are the same for {pairs[0].tokens} tokens"
    )
    if apart:
        words += f"; the first parts after {min(apart)} (`--html` has them side by side)"
    return words
