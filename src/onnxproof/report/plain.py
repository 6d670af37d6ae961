"""How reports write names and numbers: visible, on one line, not too long."""

import math
import re
from pathlib import Path

from onnxproof.results import Cause
from onnxproof.system.text import block, visible

__all__ = [
    "LONGEST",
    "block",
    "brief",
    "noise_change",
    "ratio",
    "relative",
    "safe",
    "share",
    "short",
    "visible",
]

_DIGITS = re.compile(r"-?\d+\.\d{7,}(?:e[-+]?\d+)?")
LONGEST = 300
"""Characters of a name that a report shows; the proof's JSON keeps all of it."""


def safe(text: str) -> str:
    """The visible text for rich's console, whose markup it may not be."""
    from rich.markup import escape

    return escape(visible(text))


def short(text: str, longest: int = LONGEST) -> str:
    """The visible text on one line, its middle left out where it is too long.

    >>> short("abcdefghij", 7)
    'abc...ij'
    """
    if "\n" in text or "\t" in text:
        text = " ".join(text.split())
    text = visible(text)
    if len(text) <= longest:
        return text
    head = longest - longest // 3 - 2
    return f"{text[:head]}...{text[-(longest // 3) :]}"


def brief(text: str) -> str:
    """The text with six digits of each number.

    >>> brief("[0,1]=-0.12345678901234, nan")
    '[0,1]=-0.123457, nan'
    """
    return _DIGITS.sub(lambda match: f"{float(match[0]):.6g}", text)


def relative(path: str) -> Path:
    """The path as seen from the working folder, where it lies below: that is what people read, and what a code host can link to."""
    original = Path(path)
    try:
        return original.resolve().relative_to(Path.cwd())
    except (ValueError, OSError):
        return original


def ratio(value: float) -> str:
    """How many times the noise: one decimal below a hundred, none beyond."""
    if value < 100:
        return f"{value:,.1f}"
    if math.isfinite(value):
        return f"{value:,.0f}"
    return str(value)


def noise_change(cause: Cause) -> str:
    """How a cause moved the error, as far as that was measured, and unless its evidence says it with the cases it was tried on."""
    if not cause.before or "noise before, " in cause.evidence:
        return ""
    if cause.after is None:
        return f" ({ratio(cause.before)} times the noise)"
    return f" ({ratio(cause.before)} times the noise before, {ratio(cause.after)} after)"


def share(allowance: float) -> str:
    """How much of the classical tolerance the worst element used: below 100 % `allclose` passes."""
    if math.isnan(allowance):
        return "unknown"
    if allowance < 0.1:
        return f"{allowance:.2%}"
    if allowance < 10:
        return f"{allowance:.0%}"
    return "fails"


def percent(value: float, digits: int = 2) -> str:
    """A share as a percentage; `unknown` where there is no number, as of nothing at all.

    >>> percent(0.125, 1), percent(float("nan"))
    ('12.5%', 'unknown')
    """
    if not math.isfinite(value):
        return "unknown"
    return f"{value:.{digits}%}"


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "model"), plural(3, "model")
    ('1 model', '3 models')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
