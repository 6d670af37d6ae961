"""Releases of ONNX Runtime: the same file, each in a virtual environment of its own."""

from collections.abc import Sequence
from pathlib import Path

from onnxproof.bisection.axes import Place
from onnxproof.errors import UsageError
from onnxproof.runtimes import parse


class Releases:
    """`ort@VERSION` for each version; `backend` says the level or the provider."""

    name = "onnxruntime"

    def __init__(self, points: Sequence[str], file: Path, backend: str = "ort") -> None:
        key, self._option = parse(backend)
        if key != "ort":
            raise UsageError(
                "bad-backend",
                f"releases of onnxruntime are tried, and `{backend}` is none of it",
                help="leave `--backend` out, or give a level such as `ort:basic`",
            )
        self.points = list(points)
        self.file = file

    def prepare(self, point: str) -> Place:
        """The file on that release."""
        return self.at(point, self._option)

    def at(self, point: str, option: str) -> Place:
        """The file on that release with other options."""
        suffix = f":{option}" if option else ""
        return Place(path=self.file, backend=f"ort@{point}{suffix}")
