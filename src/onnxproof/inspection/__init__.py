"""Is a file's size and structure reasonable? One file a check: `check(view)` yields what it saw, each with a verdict.

Nothing here runs the model; what is said is read from the file, and from the module where one is given.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxproof.inspection import checks
from onnxproof.inspection.view import Check, Rating, View, Weight, open_view

__all__ = ["Check", "Inspection", "Rating", "View", "Weight", "inspect"]
_HEAVIEST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What was seen: the checks, the operators, and where the megabytes are."""

    path: str
    opset: int
    producer: str
    file_bytes: int
    weight_bytes: int
    parameters: int
    nodes: int
    checks: tuple[Check, ...]
    operators: dict[str, int]
    heaviest: tuple[Weight, ...]

    @property
    def rating(self) -> Rating:
        """The worst of the checks."""
        return max(
            (check.rating for check in self.checks), key=list(Rating).index, default=Rating.GOOD
        )


def inspect(path: str | Path, reference: Any = None) -> Inspection:
    """Look a file over; with a module (or any subject) as the reference, its weights are compared by count.

    >>> inspect("model.onnx").rating      # doctest: +SKIP
    <Rating.GOOD: 'good'>
    """
    view = open_view(Path(path), reference)
    found = tuple(
        check
        for name in _names()
        for check in importlib.import_module(f"{checks.__name__}.{name}").check(view)
    )
    weights = sorted(view.weights, key=lambda weight: -weight.bytes)
    return Inspection(
        path=str(path),
        opset=view.file.opset,
        producer=f"{view.file.model.producer_name} {view.file.model.producer_version}".strip(),
        file_bytes=view.file_bytes,
        weight_bytes=sum(weight.bytes for weight in weights),
        parameters=sum(weight.elements for weight in weights),
        nodes=len(view.nodes),
        checks=found,
        operators=dict(view.operators.most_common()),
        heaviest=tuple(weights[:_HEAVIEST]),
    )


def _names() -> Iterator[str]:
    return (info.name for info in pkgutil.iter_modules(checks.__path__))
