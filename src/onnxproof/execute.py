"""Run models and keep the time: every forward pass is accounted to the model that made it."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.backends import Session, open_session
from onnxproof.backends._apart import ApartSession
from onnxproof.cases._space import as_dtype
from onnxproof.types import Signature

Array = np.ndarray[Any, Any]


class Clock:
    """Seconds and forward passes by name."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.seconds: dict[str, float] = defaultdict(float)
        self.passes: dict[str, int] = defaultdict(int)

    @contextmanager
    def forward(self, name: str) -> Iterator[None]:
        """Account one forward pass to `name`, whether it answers or raises."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start
            self.passes[name] += 1

    @property
    def elapsed(self) -> float:
        """Seconds since the clock was made."""
        return time.perf_counter() - self.started


class Candidate:
    """The ONNX file on one backend, fed by the reference's names and read in the reference's order."""

    def __init__(self, backend: str, path: Path, signature: Signature, clock: Clock, *, session: Session | None = None) -> None:
        self.backend, self._signature, self._clock = backend, signature, clock
        self.session = session or open_session(backend, path)
        self._path = path
        self._apart: ApartSession | None = None

    def run(self, inputs: Mapping[str, Array], *, apart: bool = False) -> list[Array | None]:
        """The candidate's outputs in the order of the signature's; None for one that the file does not have.

        `apart` runs in a process of its own: some inputs (an empty batch into an LSTM) abort the whole process.
        """
        if apart and self._apart is None:
            self._apart = ApartSession(self.backend, self._path, self.session.input_names, self.session.output_names)
        session = self._apart if apart and self._apart is not None else self.session
        with self._clock.forward(self.backend):
            found = session.run(feed(inputs, self._signature))
        by_name = dict(zip(self.session.output_names, found, strict=True))
        return [by_name.get(output.onnx_name or "") for output in self._signature.outputs]

    def close(self) -> None:
        """Let the sessions go."""
        self.session.close()
        if self._apart is not None:
            self._apart.close()


def feed(inputs: Mapping[str, Array], signature: Signature) -> dict[str, Array]:
    """The file's inputs from the reference's: renamed, copied, and converted where the dtypes differ."""
    fed: dict[str, Array] = {}
    for info in signature.inputs:
        if info.onnx_name is not None:
            array = np.array(inputs[info.name], order="C")
            wanted = info.onnx_dtype
            fed[info.onnx_name] = as_dtype(array, np.dtype(wanted)) if wanted and wanted not in (str(array.dtype), "unknown") else array
    return fed
