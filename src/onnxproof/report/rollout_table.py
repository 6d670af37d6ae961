"""Rollouts for people: one line a schedule, the call that goes wrong, and the texts up to where they part. Every writer shows these."""

import math
from collections.abc import Iterator, Sequence
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
_LEAST_RATIO, _LEAST_KL = 1e-2, 1e-12
"""Noise ratios and divergences below these are drawn there."""
_POWERS = 10
"""Powers of ten from the bottom of a curve to its top: noise ratios up to 1e8."""
_KL_POWERS = 14
"""The same for divergences in nats: up to 100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What a page draws of one rollout: points of a line, and where it goes wrong."""

    schedule: str
    title: str
    """What is drawn, and its range."""
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
    """Small curves of each rollout along its calls: the noise ratio, and for models with logits the divergence and the agreement."""
    return [curve for rollout in proof.rollouts if rollout.along for curve in _curves(rollout)]


def _curves(rollout: Rollout) -> Iterator[Curve]:
    ratios = [_power(step.noise_ratio, _LEAST_RATIO, _POWERS) for step in rollout.along]
    about = "; ".join(words(rollout))
    yield _curve(rollout, "noise ratio, 0.01 to 100,000,000 by powers of ten", ratios, about)
    kl = [step.kl for step in rollout.along if step.kl is not None]
    if len(kl) == len(rollout.along):
        levels = [_power(nats, _LEAST_KL, _KL_POWERS) for nats in kl]
        own = ""
        if rollout.kl_noise is not None:
            own = f"the reference's own is {rollout.kl_noise:.0e} in the mean"
        yield _curve(rollout, "KL in nats, 1e-12 to 100 by powers of ten", levels, own)
    agreement = [step.agreement for step in rollout.along if step.agreement is not None]
    if len(agreement) == len(rollout.along):
        yield _curve(rollout, "share of places with the reference's best token", agreement, "")


def _power(value: float, least: float, powers: int) -> float:
    """A number as a height from 0 to 1, by powers of ten."""
    return math.log10(min(max(value, least), least * 10.0**powers) / least) / powers


def _curve(rollout: Rollout, title: str, heights: Sequence[float], about: str) -> Curve:
    count = max(len(heights) - 1, 1)
    points = [
        f"{_WIDTH * place / count:.1f},{_HEIGHT * (1 - height):.1f}"
        for place, height in enumerate(heights)
    ]
    bad = None
    if rollout.first_bad_step is not None:
        bad = _WIDTH * rollout.first_bad_step / count
    return Curve(
        schedule=rollout.schedule, title=title, points=" ".join(points), bad=bad, about=about
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
