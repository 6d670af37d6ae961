"""Names as they may be shown: they come from models and files, and may hold anything.

A terminal obeys escape sequences, XML forbids control characters, and a right-to-left mark turns the text around it. So each
such character is written out as its code.
"""

import math
import re
from pathlib import Path

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_ODD = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff{_BIDI}]")
_DIGITS = re.compile(r"-?\d+\.\d{7,}(?:e[-+]?\d+)?")
LONGEST = 300
"""Characters of a name that a report shows; the proof's JSON keeps all of it."""


def visible(text: str) -> str:
    r"""The text with every character that would act instead of showing written as its code.

    >>> visible("a\x1b[31mb\u202ec")
    'a<U+001B>[31mb<U+202E>c'
    """
    return _ODD.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)


def safe(text: str) -> str:
    """The visible text for rich's console, whose markup it may not be."""
    from rich.markup import escape

    return escape(visible(text))


def short(text: str, longest: int = LONGEST) -> str:
    """The visible text on one line, its middle left out where it is too long.

    >>> short("abcdefghij", 7)
    'abc...ij'
    """
    text = visible(" ".join(text.split()) if "\n" in text or "\t" in text else text)
    if len(text) <= longest:
        return text
    head = longest - longest // 3 - 2
    return f"{text[:head]}...{text[-(longest // 3):]}"


def brief(text: str) -> str:
    """The text with six digits of each number.

    >>> brief("[0,1]=-0.12345678901234, nan")
    '[0,1]=-0.123457, nan'
    """
    return _DIGITS.sub(lambda found: f"{float(found[0]):.6g}", text)


def relative(path: str) -> Path:
    """The path as seen from the working folder, where it lies below: that is what people read, and what a code host can link to."""
    found = Path(path)
    try:
        return found.resolve().relative_to(Path.cwd())
    except (ValueError, OSError):
        return found


def ratio(value: float) -> str:
    """How many times the noise: one decimal below a hundred, none beyond."""
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}" if math.isfinite(value) else str(value)


def share(allowance: float) -> str:
    """How much of the classical tolerance the worst element used: below 100 % `allclose` passes."""
    if math.isnan(allowance):
        return "unknown"
    return f"{allowance:.2%}" if allowance < 0.1 else f"{allowance:.0%}" if allowance < 10 else "fails"


def percent(value: float, digits: int = 2) -> str:
    """A share as a percentage; `unknown` where there is no number, as of nothing at all.

    >>> percent(0.125, 1), percent(float("nan"))
    ('12.5%', 'unknown')
    """
    return f"{value:.{digits}%}" if math.isfinite(value) else "unknown"
