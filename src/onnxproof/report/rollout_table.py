"""Rollouts for people: one line a schedule, the call that goes wrong, and the texts up to where they part. Every writer shows these."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from onnxproof.report.plain import ratio, safe
from onnxproof.results import Rollout
from onnxproof.results.proof import Proof

COLUMNS = (
    "rollout",
    "backend",
    "calls",
    "first bad call",
    "what",
    "× noise",
    "KL (own)",
    "agreement",
    "token apart",
)
_TOKENS = 12
"""Tokens that are shown before two texts part."""
_WIDTH, _HEIGHT = 360, 60
"""Size of a small curve on the page."""
_LEAST = 1e-2
"""Noise ratios below this are drawn there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What a page draws of one rollout: points of a line, and where it goes wrong."""

    schedule: str
    points: str
    bad: float | None
    """The place of the first bad call."""
    about: str


def cells(rollout: Rollout) -> list[str]:
    """One line, in the order of `COLUMNS`."""
    bad = "none"
    if rollout.first_bad_step is not None:
        bad = f"{rollout.first_bad_step} (after {rollout.first_bad_length})"
    worst = max((step.noise_ratio for step in rollout.along), default=0.0)
    return [
        rollout.schedule,
        rollout.backend,
        str(rollout.steps),
        bad,
        rollout.what,
        ratio(worst),
        _divergence(rollout),
        _agreement(rollout),
        _apart(rollout),
    ]


def words(rollout: Rollout) -> list[str]:
    """What is to be said beside the line: the smallest rollout that shows a fault, and the texts up to where they part."""
    sentences = []
    if rollout.smallest and rollout.smallest != rollout.schedule:
        sentences.append(f"`{rollout.smallest}` is the smallest rollout that still shows it")
    if rollout.first_token_apart is not None and rollout.tokens:
        shown = rollout.tokens[-_TOKENS:]
        reference = " ".join(str(one) for one, _ in shown)
        candidate = " ".join(str(other) for _, other in shown)
        sentences.append(f"tokens of the reference: {reference}; of the file: {candidate}")
    return sentences


def show(proof: Proof, out: Console) -> None:
    """The table on the terminal; the columns of language only where there are logits."""
    if not proof.rollouts:
        return
    has_language = any(rollout.kl is not None for rollout in proof.rollouts)
    shown = len(COLUMNS) if has_language else len(COLUMNS) - 3
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in COLUMNS[:shown]:
        table.add_column(name, overflow="fold")
    for rollout in proof.rollouts:
        table.add_row(*[safe(cell) for cell in cells(rollout)[:shown]])
    out.print()
    out.print(table)
    for sentence in _first_words(proof.rollouts):
        out.print(f"  {safe(sentence)}", soft_wrap=True)


def curves(proof: Proof) -> list[Curve]:
    """A small curve of each rollout: the noise ratio along its calls, by powers of ten."""
    return [_curve(rollout) for rollout in proof.rollouts if rollout.along]


def _curve(rollout: Rollout) -> Curve:
    count = max(len(rollout.along) - 1, 1)
    points = []
    for place, step in enumerate(rollout.along):
        level = math.log10(min(max(step.noise_ratio, _LEAST), 1e8) / _LEAST) / 10
        points.append(f"{_WIDTH * place / count:.1f},{_HEIGHT * (1 - level):.1f}")
    bad = None
    if rollout.first_bad_step is not None:
        bad = _WIDTH * rollout.first_bad_step / count
    return Curve(
        schedule=rollout.schedule,
        points=" ".join(points),
        bad=bad,
        about="; ".join(words(rollout)),
    )


def _first_words(rollouts: Sequence[Rollout]) -> list[str]:
    """Of the first rollout that is wrong, or whose text parts by a tie."""
    for rollout in rollouts:
        sentences = words(rollout)
        if sentences:
            return sentences
    return []


def _divergence(rollout: Rollout) -> str:
    if rollout.kl is None or rollout.kl_noise is None:
        return ""
    return f"{rollout.kl:.1e} ({rollout.kl_noise:.0e})"


def _agreement(rollout: Rollout) -> str:
    if rollout.agreement is None:
        return ""
    words = f"{rollout.agreement:.1%}"
    if rollout.excused:
        words += f" + {rollout.excused:.1%} ties"
    return words


def _apart(rollout: Rollout) -> str:
    if rollout.first_token_apart is None:
        return ""
    kind = "tie" if rollout.apart_by_tie else "fault"
    return f"{rollout.first_token_apart} ({kind})"
