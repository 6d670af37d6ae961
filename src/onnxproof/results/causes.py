"""Why it went wrong: causes with their fixes, and the shares of a quantization error."""

from dataclasses import dataclass

from onnxproof.results.verdicts import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A remedy that was applied and verified before it was offered."""

    kind: str
    """graph, session, export or code."""
    what: str
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A hypothesis that was tried."""

    code: str
    title: str
    proven: bool
    evidence: str
    before: float | None = None
    """The error in multiples of the noise, as measured; None where nothing was."""
    after: float | None = None
    """What is left of it with the fault put right (or put into the reference), as measured; None where nothing was."""
    fix: Fix | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One step of the waterfall from a quantized model to float: what granting it recovers, on top of the steps before it."""

    code: str
    db: float
    share: float
    """Of the energy of the whole error; the shares of all steps add up to one."""
    after_db: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRange:
    """The values that a tensor takes on data that did not choose its range, that range, and how the two fit."""

    tensor: str
    low: float
    high: float
    chosen_low: float
    chosen_high: float
    clipped: float = 0.0
    """Share of the values beyond the range."""
    unused: float = 0.0
    """Share of the range that no value reaches."""
    values: int = 0
    """How many values were looked at."""
