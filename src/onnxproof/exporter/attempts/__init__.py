"""What is known to help when an export fails: one file a way, tried in this order, each verified before it is offered.

A file has `ABOUT`, `KINDS` (the kinds of failure it may help with) and `run(job, failure)`, which gives a `Made` or raises;
`applies(job)` where it is for some modules only.
What is made for the module at hand comes first, since it costs one export: batched experts before other captures. A rewritten branch comes before the
TorchScript exporter: tracing would freeze that branch, and may do so unseen.
"""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from onnxproof.exporter.failures import Failure
from onnxproof.exporter.job import Job, Made

ORDER = ("decompositions", "replacement", "experts", "strict", "branch", "scripted", "traced")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One of the files."""

    name: str
    about: str
    run: Callable[[Job, Failure], Made]


def ways(job: Job, failure: Failure) -> Iterator[Way]:
    """Those that may help with this failure of this module, in order."""
    for name in ORDER:
        module = importlib.import_module(f"{__name__}.{name}")
        if failure.kind in module.KINDS and (not hasattr(module, "applies") or module.applies(job)):
            yield named(name)


def named(name: str) -> Way:
    """One of them."""
    module = importlib.import_module(f"{__name__}.{name}")
    return Way(
        name=name, about=module.ABOUT, run=cast("Callable[[Job, Failure], Made]", module.run)
    )
