"""What is known to help when an export fails: one file for each attempt, tried in this order, each verified before it is taken.

A file has `ABOUT`, `KINDS` (the kinds of failure it may help with) and `attempt(job, failure)`, which returns an `ExportedModel` or
raises; `applies(job)` if it is for some modules only.
What is made for the module at hand comes first, since it costs one export: batched experts before other captures. A rewritten
branch comes before the TorchScript exporter: tracing would freeze that branch, possibly without a warning.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from onnxproof.exporter.failures import Failure
from onnxproof.exporter.job import ExportedModel, Job
from onnxproof.registry import Registry

ORDER = (
    "decompositions",
    "replacement",
    "experts",
    "strict",
    "branch",
    "scripted",
    "traced",
    "unoptimized",
)


class AttemptFile(Protocol):
    """What the file of an attempt defines."""

    ABOUT: str
    KINDS: Sequence[str]

    def attempt(self, job: Job, failure: Failure) -> ExportedModel:
        """Export in another way, or raise."""


ATTEMPTS: Registry[AttemptFile] = Registry("attempt", __name__, AttemptFile)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """One of the files."""

    name: str
    about: str
    attempt: Callable[[Job, Failure], ExportedModel]


def applicable(job: Job, failure: Failure) -> Iterator[Fallback]:
    """Those that may help with this failure of this module, in order."""
    for name in ORDER:
        file = ATTEMPTS.load(name)
        applies = getattr(file, "applies", None)
        if failure.kind in file.KINDS and (applies is None or applies(job)):
            yield load(name)


def load(name: str) -> Fallback:
    """One of them by its name."""
    file = ATTEMPTS.load(name)
    return Fallback(name=name, about=file.ABOUT, attempt=file.attempt)
