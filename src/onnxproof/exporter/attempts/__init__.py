"""What is known to help when an export fails: one file for each attempt, tried in this order, each verified before it is taken.

A file has `ABOUT`, `KINDS` (the kinds of failure it may help with) and `attempt(job, failure)`, which returns an `ExportedModel` or
raises; `applies(job)` if it is for some modules only.
What is made for the module at hand comes first, since it costs one export: batched experts before other captures. A rewritten
branch comes before the TorchScript exporter: tracing would freeze that branch, possibly without a warning.
"""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from onnxproof.exporter.failures import Failure
from onnxproof.exporter.job import ExportedModel, Job

ORDER = ("decompositions", "replacement", "experts", "strict", "branch", "scripted", "traced")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """One of the files."""

    name: str
    about: str
    attempt: Callable[[Job, Failure], ExportedModel]


def applicable(job: Job, failure: Failure) -> Iterator[Fallback]:
    """Those that may help with this failure of this module, in order."""
    for name in ORDER:
        module = importlib.import_module(f"{__name__}.{name}")
        if failure.kind in module.KINDS and (not hasattr(module, "applies") or module.applies(job)):
            yield load(name)


def load(name: str) -> Fallback:
    """One of them by its name."""
    module = importlib.import_module(f"{__name__}.{name}")
    attempt = cast("Callable[[Job, Failure], ExportedModel]", module.attempt)
    return Fallback(name=name, about=module.ABOUT, attempt=attempt)
