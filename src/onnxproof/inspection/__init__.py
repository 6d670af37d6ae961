"""Is a file's size and structure reasonable? One file for each check: `check(view)` yields its results, each with a rating.

Nothing here runs the model; everything is read from the file, and from the module if there is one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from onnxproof.inspection.view import Check, Rating, View, Weight, open_view
from onnxproof.registry import Registry

__all__ = ["Check", "Inspection", "Rating", "View", "Weight", "inspect"]
_MAX_HEAVIEST = 10
"""Weights that an inspection lists."""


class CheckFile(Protocol):
    """What the file of a check defines."""

    def check(self, view: View) -> Iterable[Check]:
        """What it saw, each with a rating."""


CHECKS: Registry[CheckFile] = Registry(
    "check", "onnxproof.inspection.checks", CheckFile, group="onnxproof.checks"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The results of the checks, the operators, and the largest weights."""

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
        ratings = [check.rating for check in self.checks]
        return max(ratings, key=list(Rating).index, default=Rating.GOOD)


def inspect(path: str | Path, reference: Any = None) -> Inspection:
    """Inspect a file, or every file of a folder; with a module (or any subject) as the reference, a file's weights are compared by count.

    Args:
        path: the ONNX file. Example: `path="model.onnx"`
        reference: a module, or any other reference, whose weights are counted beside the file's.
            Example: `reference="model.py:build"`

    >>> inspect("model.onnx").rating      # doctest: +SKIP
    <Rating.GOOD: 'good'>
    """
    if Path(path).is_dir():
        from onnxproof.inspection.folders import inspect_folder

        return inspect_folder(Path(path), reference, inspect)
    view = open_view(Path(path), reference)
    results: list[Check] = []
    for file in CHECKS.load_all().values():
        results.extend(file.check(view))
    weights = sorted(view.weights, key=lambda weight: -weight.bytes)
    return Inspection(
        path=str(path),
        opset=view.file.opset,
        producer=f"{view.file.model.producer_name} {view.file.model.producer_version}".strip(),
        file_bytes=view.file_bytes,
        weight_bytes=sum(weight.bytes for weight in weights),
        parameters=sum(weight.elements for weight in weights),
        nodes=len(view.nodes),
        checks=tuple(results),
        operators=dict(view.operators.most_common()),
        heaviest=tuple(weights[:_MAX_HEAVIEST]),
    )
