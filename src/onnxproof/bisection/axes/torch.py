"""Releases of PyTorch: the module exported by each, in a virtual environment of its own."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import onnxproof
from onnxproof.bisection.axes import Place
from onnxproof.errors import ExportError
from onnxproof.runtimes.session.virtual_environment import environment, same_version

_BESIDE = (
    "onnxscript",
    "onnx",
    "onnx-ir",
    "onnxruntime",
    "ml_dtypes",
    "safetensors",
    "typer",
    "rich",
)
"""What an export needs beside torch, in the versions that run here, so that only torch is another one."""
_PATIENCE_S = 1800
"""Seconds that an export has. Not measured."""
_PROOF_S = "5"
"""The budget of the export's own proof, in seconds: the answers are compared here again."""
_BOOT = """
import importlib.util, sys
folder = sys.argv[1]
spec = importlib.util.spec_from_file_location("onnxproof", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules["onnxproof"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from onnxproof.cli import main
sys.argv[1:] = sys.argv[2:]
sys.exit(main())
"""
"""Runs this very onnxproof under the interpreter of that environment."""


class Releases:
    """A file for each release, exported from the words that name the module, with the options that `onnxproof export` takes."""

    name = "torch"

    def __init__(
        self, points: Sequence[str], words: Sequence[str], folder: Path, backend: str = "ort"
    ) -> None:
        self.points = list(points)
        self._words = list(words)
        self._folder = folder
        self._backend = backend

    def prepare(self, point: str) -> Place:
        """The file that this release exports."""
        path = self._folder / f"torch-{point}.onnx"
        if not path.exists():
            python = environment("torch", f"torch=={point}", list(map(same_version, _BESIDE)))
            self._export(point, python, path)
        return Place(path=path, backend=self._backend)

    def _export(self, point: str, python: Path, path: Path) -> None:
        """A verdict of the export decides nothing here: only that there is a file."""
        boot = [str(python), "-c", _BOOT, str(Path(onnxproof.__file__).parent)]
        options = ["--output", str(path), "--no-explain", "--quiet", "--budget", _PROOF_S]
        without = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        variables = {name: value for name, value in os.environ.items() if name not in without}
        try:
            done = subprocess.run(
                [*boot, "export", *self._words, *options],
                capture_output=True,
                text=True,
                timeout=_PATIENCE_S,
                check=False,
                env=variables,
            )
        except subprocess.TimeoutExpired:
            what = f"torch {point} did not export it within {_PATIENCE_S} s"
            raise ExportError("not-exported", what) from None
        if not path.exists():
            said = [line for line in done.stderr.splitlines() if line.strip()]
            raise ExportError("not-exported", f"torch {point} does not export it", notes=said[-3:])
