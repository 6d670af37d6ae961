"""What a suite keeps: one record for each run, for each model in it, and for each backend of a model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What one backend gave for a model."""

    backend: str
    verdict: str
    noise_ratio: float | None = None
    """The largest one of what counts; None where nothing was compared."""
    quality: float | None = None
    """Of a quantized file: output SQNR in dB."""
    latency_ms: float | None = None
    """One forward pass, over all cases of the run; None where the backend was not timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one model in one run."""

    name: str
    verdict: str
    """faithful, drift, diverged, error or vacuous."""
    backends: tuple[str, ...] = ()
    noise_ratio: float | None = None
    quality: float | None = None
    duration_s: float = 0.0
    """Of the command alone (verify, export, ...), as its process measured it."""
    key: str = ""
    """The hash of all that the verdict depends on and that is known before it is run."""
    tags: tuple[str, ...] = ()
    error: str = ""
    """Why there is no verdict, with the last words of the process."""
    expected: Mapping[str, Any] | None = None
    """verdict, reason and expires, as the manifest says."""
    proof: Mapping[str, Any] | None = field(default=None, repr=False)
    """The proof as JSON; None where there is none."""
    measures: tuple[Measure, ...] = ()
    passed: bool = False
    """Whether the proof passes under its own policy (drift under strict does not; a baseline that was left does not)."""
    summary: str = ""
    """The verdict in one sentence."""
    cause: str = ""
    """The code of the first cause."""
    peak_mb: float | None = None
    """The most memory that its processes held together."""
    attempts: int = 1
    """Times that it was started: more than one where a worker was lost."""
    depends: Mapping[str, str] = field(default_factory=dict)
    """Files of the user that the process read while it ran, with the sha256 of each."""
    reused_from: int | None = None
    """The run whose result this is, where nothing had changed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One start of a suite, and all that was the same for its models."""

    id: int
    suite: str
    started: str
    """UTC, as in 2026-11-18T02:10:00Z."""
    finished: str | None = None
    """None while it runs, and after it was killed."""
    commit_id: str | None = None
    engine: str = "local"
    versions: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    """What the command line chose, and `plan`: the hash by which an unfinished run is found again."""
