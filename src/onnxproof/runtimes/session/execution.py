"""Run models and keep the time: every forward pass is accounted to the model that made it."""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import Crashed, OnnxproofError, Refused
from onnxproof.inputs.space import as_dtype
from onnxproof.numerics import port_values
from onnxproof.results import Finding, Signature
from onnxproof.runtimes import Session, current, open_session
from onnxproof.runtimes.session import observed_run

Array = np.ndarray[Any, Any]
_HANGS = 3
"""Runs out of time after which a runtime that answered before is not run again, as often as one that died is started. Not measured."""


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
    """The ONNX file on one backend, fed by the reference's names and read in the reference's order. Nothing that it says of itself is believed."""

    def __init__(
        self,
        backend: str,
        path: Path,
        signature: Signature,
        clock: Clock,
        *,
        session: Session | None = None,
    ) -> None:
        self.backend = backend
        self._signature = signature
        self._clock = clock
        self.session = session or open_session(backend, path)
        self._path = path
        self._isolated: Session | None = None
        self._deaths: list[tuple[Crashed, bool]] = []
        self._overwritten: Counter[str] = Counter()
        self.answered = False

    def run(self, inputs: Mapping[str, Array], *, isolated: bool = False) -> list[Array | None]:
        """The candidate's outputs in the order of the signature's; None for one that the file does not have.

        `isolated` runs in a session of its own, and in a process of its own where that can be: some inputs (an empty batch
        into an LSTM) abort the whole process, and some leave a session that answers wrongly from then on. That session
        has another number of threads, so that whoever examines the runtime sees what they change.
        """
        if isolated and self.hung is None:
            self.open_other(isolate=True)
        session = self.session
        if isolated and self._isolated is not None:
            session = self._isolated
        with self._clock.forward(self.backend):
            outputs = self._run_observed(session, feed(inputs, self._signature))
        names = self.session.output_names
        if len(outputs) != len(names):
            raise Refused(
                "output-count",
                f"`{self.backend}` returns {len(outputs)} outputs, and the file has {len(names)}",
            )
        by_name: dict[str, Array] = {}
        for name, output in zip(names, outputs, strict=True):
            flat = port_values.flatten(name, output)
            by_name |= {part: port_values.encode(array) for part, array in flat.items()}
        return [
            as_complex(by_name.get(output.onnx_name or ""), output.dtype)
            for output in self._signature.outputs
        ]

    def open_other(self, *, isolate: bool | None) -> None:
        """Open the session for isolated runs, if it isn't yet; None leaves it to the backend whether it gets a process."""
        if self._isolated is None:
            threads = 1 if (current().threads or os.cpu_count() or 1) > 1 else 2
            self._isolated = open_session(
                self.backend, self._path, replace(current(), isolate=isolate, threads=threads)
            )

    def findings(self) -> Iterator[Finding]:
        """What is to be known of the runtime itself: where it ran, how it died, what it wrote to."""
        for finding in getattr(self.session, "findings", ()):
            yield replace(finding, what=f"{self.backend}: {finding.what}")
        for code, empty in dict.fromkeys((why.code, empty) for why, empty in self._deaths):
            deaths = [
                why for why, on_empty in self._deaths if (why.code, on_empty) == (code, empty)
            ]
            runs = f"{len(deaths)} run{'s' * (len(deaths) != 1)}"
            if empty:
                runs += ", on an empty tensor"
            first = deaths[0]
            yield Finding(
                code=code, what=f"{first.what} ({runs})", help="; ".join(first.notes[-2:])
            )
        for name, count in self._overwritten.items():
            yield Finding(
                code="input-overwritten",
                what=f"`{self.backend}` wrote into its input `{name}` in {count} run{'s' * (count != 1)}",
                fails=True,
                help="its answers were measured on copies, and stand; whoever serves with it loses the arrays that it is given",
            )

    def close(self) -> None:
        """Let the sessions go."""
        self.session.close()
        if self._isolated is not None:
            self._isolated.close()

    @property
    def hung(self) -> Crashed | None:
        """How it ran out of time, where that settles it: in its first run, or often. Each further question would cost the whole limit again."""
        hangs = [why for why, _ in self._deaths if why.code == "hung"]
        enough = _HANGS if self.answered else 1
        if len(hangs) < enough:
            return None
        return hangs[0]

    def _run_observed(self, session: Session, fed: Mapping[str, Array]) -> list[Array | None]:
        if self.hung is not None:
            raise Refused("hung", f"{self.hung.what}; it is not asked again")
        try:
            observed = observed_run.run(session, fed)
        except Crashed as why:
            self._deaths.append((why, any(array.size == 0 for array in fed.values())))
            raise
        except OnnxproofError:
            raise
        except Exception as why:
            # Whatever a runtime raises: it does not take this input, and the other runtimes go on.
            raise Refused(
                "raised",
                f"`{self.backend}` raised {type(why).__name__}: {' '.join(str(why).split())[:300]}",
            ) from why
        self.answered = True
        self._overwritten.update(observed.overwritten)
        return observed.outputs


def feed(inputs: Mapping[str, Array], signature: Signature) -> dict[str, Array]:
    """The file's inputs from the reference's: renamed, copied, and converted where the dtypes differ."""
    fed: dict[str, Array] = {}
    for info in signature.inputs:
        if info.onnx_name is not None:
            array = np.array(inputs[info.name], order="C")
            wanted = info.onnx_dtype
            if array.dtype.kind == "c" and wanted is not None and not wanted.startswith("complex"):
                array = np.stack([array.real, array.imag], axis=-1)  # the exporter's real view
            if wanted and wanted not in (str(array.dtype), "unknown"):
                array = as_dtype(array, np.dtype(wanted))
            fed[info.onnx_name] = array
    return fed


def as_complex(array: Array | None, dtype: str) -> Array | None:
    """A file's real view `[..., 2]` of what is complex in the reference, as complex numbers; anything else as it is."""
    if array is None or not dtype.startswith("complex"):
        return array
    if array.dtype.kind != "f" or not array.ndim or array.shape[-1] != 2:
        return array
    wide = {4: np.complex64, 8: np.complex128}.get(array.dtype.itemsize)
    if wide is None:
        return array
    return np.ascontiguousarray(array).view(wide)[..., 0]
