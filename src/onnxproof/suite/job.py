"""One model as an engine gets it: what to do, within which limits; and what comes back. Both are plain enough for JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One model to run."""

    name: str
    values: Mapping[str, Any]
    """The keys of the manifest, filled in, without the expected verdict."""
    folder: str
    """What paths are relative to: the model's process works there."""
    limit_s: float
    """Seconds after which it is ended."""
    memory: int = 0
    """Bytes that its processes may hold together; 0 leaves it to the engine."""
    cores: int = 1
    gpus: float = 0.0
    expected_memory: int = 0
    """Bytes that it is expected to need: as measured before, or guessed from its files."""
    expected_s: float = 0.0
    """Seconds that it is expected to take: as measured before, or a guess that only orders."""
    update_baseline: bool = False
    files: tuple[str, ...] = ()
    """Files that it reads, for workers that have another file system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a job: the answer of its process, or how that ended."""

    answer: Mapping[str, Any] | None = None
    """What `doing.execute` gave; with a failure, what it had before it began to explain."""
    failure: str = ""
    """Why there is no answer, or no whole one, with the last words."""
    seconds: float = 0.0
    """From start to end, as whoever watched saw it."""
    peak: int = 0
    """The most bytes that its processes held together."""
    attempts: int = 1
    stopped: str = ""
    """Why the engine ended it, where it did."""
    job: Job | None = None
    lost: bool = False
    """Whether somebody else ended it (an operator, a system without memory): once more may go well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What an engine tells: `started` and `lost` (it will be started again) of a job, and `ended` with its outcome; `waiting` now and then."""

    kind: str
    job: Job | None = None
    outcome: Outcome | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is the same for all jobs of a run."""

    jobs: int
    """Models at a time."""
    memory: int
    """Bytes that all models together may hold."""
    preload: tuple[str, ...] = ()
    doings: tuple[str, ...] = ("verify",)
    """What is done with any of them: workers import what that needs."""
    search: tuple[str, ...] = ()
    """Folders in which a model's own packages are looked for, beside its folder."""
    address: str = ""
    """Of a cluster."""
    transport: str = "path"
    folder: str = ""
    """The suite's own."""
