"""What may be another version, one file each: `prepare(point)` says which file runs on which backend there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A file on a backend."""

    path: Path
    backend: str


class Axis(Protocol):
    """An ordered list of points, each a place."""

    name: str
    points: list[str]

    def prepare(self, point: str) -> Place:
        """The file and the backend at this point."""
