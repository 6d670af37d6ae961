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
from onnxproof.results import Finding, Signature
from onnxproof.runtimes import Session, current, open_session
from onnxproof.runtimes.session import observed_run

Array = np.ndarray[Any, Any]
_HANGS = 3
"""Runs out of time after which a runtime that answered before is not asked again, as often as one that died is started."""


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
        self.backend, self._signature, self._clock = backend, signature, clock
        self.session = session or open_session(backend, path)
        self._path = path
        self._apart: Session | None = None
        self._deaths: list[tuple[Crashed, bool]] = []
        self._spoiled: Counter[str] = Counter()
        self.answered = False

    def run(self, inputs: Mapping[str, Array], *, apart: bool = False) -> list[Array | None]:
        """The candidate's outputs in the order of the signature's; None for one that the file does not have.

        `apart` runs in a session of its own, and in a process of its own where that can be: some inputs (an empty batch
        into an LSTM) abort the whole process, and some leave a session that answers wrongly from then on. That session
        has another number of threads, so that whoever examines the runtime sees what they change.
        """
        if apart and self.hung is None:
            self.open_other(isolate=True)
        session = self._apart if apart and self._apart is not None else self.session
        with self._clock.forward(self.backend):
            found = self._watched(session, feed(inputs, self._signature))
        if len(found) != len(self.session.output_names):
            raise Refused(
                "output-count",
                f"`{self.backend}` returns {len(found)} outputs, and the file has {len(self.session.output_names)}",
            )
        by_name = dict(zip(self.session.output_names, found, strict=True))
        return [
            as_complex(by_name.get(output.onnx_name or ""), output.dtype)
            for output in self._signature.outputs
        ]

    def open_other(self, *, isolate: bool | None) -> None:
        """Open the session for runs apart, if it isn't yet; None leaves it to the backend whether it gets a process."""
        if self._apart is None:
            threads = 1 if (current().threads or os.cpu_count() or 1) > 1 else 2
            self._apart = open_session(
                self.backend, self._path, replace(current(), isolate=isolate, threads=threads)
            )

    def findings(self) -> Iterator[Finding]:
        """What is to be known of the runtime itself: where it ran, how it died, what it wrote to."""
        for finding in getattr(self.session, "findings", ()):
            yield replace(finding, what=f"{self.backend}: {finding.what}")
        for code, empty in dict.fromkeys((why.code, empty) for why, empty in self._deaths):
            died = [why for why, on_empty in self._deaths if (why.code, on_empty) == (code, empty)]
            runs = (
                f"{len(died)} run{'s' * (len(died) != 1)}{', on an empty tensor' if empty else ''}"
            )
            yield Finding(
                code=code, what=f"{died[0].what} ({runs})", help="; ".join(died[0].notes[-2:])
            )
        for name, count in self._spoiled.items():
            yield Finding(
                code="input-overwritten",
                what=f"`{self.backend}` wrote into its input `{name}` in {count} run{'s' * (count != 1)}",
                fails=True,
                help="its answers were measured on copies, and stand; whoever serves with it loses the arrays that it is given",
            )

    def close(self) -> None:
        """Let the sessions go."""
        self.session.close()
        if self._apart is not None:
            self._apart.close()

    @property
    def hung(self) -> Crashed | None:
        """How it ran out of time, where that settles it: in its first run, or often. Each further question would cost the whole limit again."""
        late = [why for why, _ in self._deaths if why.code == "hung"]
        return late[0] if len(late) >= (_HANGS if self.answered else 1) else None

    def _watched(self, session: Session, fed: Mapping[str, Array]) -> list[Array | None]:
        if self.hung is not None:
            raise Refused("hung", f"{self.hung.what}; it is not asked again")
        try:
            watched = observed_run.run(session, fed)
        except Crashed as why:
            self._deaths.append((why, any(array.size == 0 for array in fed.values())))
            raise
        except OnnxproofError:
            raise
        except Exception as why:  # whatever a runtime raises: it does not take this input, and the other runtimes go on
            raise Refused(
                "raised",
                f"`{self.backend}` raised {type(why).__name__}: {' '.join(str(why).split())[:300]}",
            ) from why
        self.answered = True
        self._spoiled.update(watched.spoiled)
        return watched.outputs


def feed(inputs: Mapping[str, Array], signature: Signature) -> dict[str, Array]:
    """The file's inputs from the reference's: renamed, copied, and converted where the dtypes differ."""
    fed: dict[str, Array] = {}
    for info in signature.inputs:
        if info.onnx_name is not None:
            array = np.array(inputs[info.name], order="C")
            wanted = info.onnx_dtype
            if array.dtype.kind == "c" and wanted is not None and not wanted.startswith("complex"):
                array = np.stack([array.real, array.imag], axis=-1)  # the exporter's real view
            fed[info.onnx_name] = (
                as_dtype(array, np.dtype(wanted))
                if wanted and wanted not in (str(array.dtype), "unknown")
                else array
            )
    return fed


def as_complex(array: Array | None, dtype: str) -> Array | None:
    """A file's real view `[..., 2]` of what is complex in the reference, as complex numbers; anything else as it is."""
    if (
        array is None
        or not dtype.startswith("complex")
        or array.dtype.kind != "f"
        or not array.ndim
        or array.shape[-1] != 2
    ):
        return array
    wide = {4: np.complex64, 8: np.complex128}.get(array.dtype.itemsize)
    return array if wide is None else np.ascontiguousarray(array).view(wide)[..., 0]
