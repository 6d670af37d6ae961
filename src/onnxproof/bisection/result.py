"""What a bisection found: frozen, with no behaviour but reading."""

from dataclasses import dataclass
from enum import StrEnum


class Part(StrEnum):
    """The part of a runtime, or the stage, that a change lies in."""

    OPTIMIZER = "optimizer"
    KERNEL = "kernel"
    FUSED_KERNEL = "fused-kernel"
    """The optimizer is at work in both, and what it makes is computed otherwise."""
    REFUSAL = "refusal"
    """One of the two refuses the file or the input."""
    FILE = "file"
    """The files differ, whatever runs them."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """What changed between two neighbours, as far as it was found out."""

    part: Part
    name: str = ""
    """The optimizer, or the node."""
    op_type: str = ""
    level: str = ""
    """The lowest level of optimisation at which the two differ."""
    proven: bool = False
    """A counterfactual was run: without the optimizer, or with the other's value of the node, the two agree."""
    evidence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where two answers differ most: the case and the output."""

    case: str
    output: str
    noise_ratio: float
    """The distance of the two in units of the reference's noise; infinite where it is no number."""
    max_abs: float
    domain: str = ""
    """nan, inf, empty ... where the case lies in an odd domain."""
    words: str = ""
    """What is not a number: another shape, a refusal, values that are no longer finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far one of two neighbours is from the truth on the case that tells them apart, in units of the noise; None where there is no number."""

    point: str
    noise_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Two neighbours that answer otherwise."""

    before: str
    after: str
    difference: Difference
    cases: int
    """How many cases differ, of how many that were asked."""
    asked: int
    standings: tuple[Standing, ...]
    blame: Blame


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One release or opset that was tried."""

    name: str
    answers: int
    """Points with the same number answer alike."""
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """All changes that were found between two ends, in order."""

    subject: str
    file: str
    axis: str
    points: tuple[Point, ...]
    """Those that were tried, in order."""
    available: tuple[str, ...]
    changes: tuple[Change, ...]

    @property
    def returns(self) -> bool:
        """True when answers that were left came back: then a release that was not tried may differ, too."""
        seen = [point.answers for point in self.points]
        steps = [one for one, other in zip(seen, [None, *seen], strict=False) if one != other]
        return len(steps) != len(set(steps))
