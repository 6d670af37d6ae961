"""What other packages add to onnxproof through entry points: backends, case generators, causes, replacements."""

import functools
import importlib.metadata
import sys
from collections.abc import Sequence


def points(group: str) -> Sequence[importlib.metadata.EntryPoint]:
    """The entry points of a group; every installed package is read for them once, and again when the path has changed."""
    return _points(group, tuple(sys.path))


@functools.cache
def _points(group: str, path: tuple[str, ...]) -> Sequence[importlib.metadata.EntryPoint]:
    return tuple(importlib.metadata.entry_points(group=group))
