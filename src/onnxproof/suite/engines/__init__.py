"""Engines: what runs the jobs of a suite, one file each; the file's name is the engine's.

From another package: an entry point of the group `onnxproof.engines`, to a function `run(jobs, setting)` or to a module with it.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from onnxproof.registry import Registry
from onnxproof.suite.job import Event, Job, Setting


class Engine(Protocol):
    """What the file of an engine defines."""

    def run(self, jobs: Sequence[Job], setting: Setting) -> Iterator[Event]:
        """Run the jobs, in this order where it can; `ended` is told once for each, the moment it is known. Closing the iterator stops all."""


ENGINES: Registry[Engine] = Registry(
    "engine", "onnxproof.suite.engines", Engine, group="onnxproof.engines"
)
