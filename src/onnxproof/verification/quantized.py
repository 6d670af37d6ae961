"""A quantized candidate is asked two questions, and this is where both are measured.

Does the runtime do what the graph says? The graph's own quantization is simulated: by the standard's evaluator in float64, or, where that
can't be had, by ONNX Runtime without optimisation. How far the simulation is from the truth is what quantization costs on this case; what the
runtime adds to it is measured in units of that cost (`noise_ratio`, of the kind `simulated`).

Does the graph still say what the reference says? `sqnr_db` and the worst channel's, agreement of decisions, and the share of
the inputs' values that the graph clips.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxproof.errors import Crashed, ModelError, Refused
from onnxproof.numerics.measure import Noise, is_float, noise_of
from onnxproof.onnxmodel.onnx_file import OnnxFile, constants, read
from onnxproof.reference.protocol import Reference
from onnxproof.reference.subject import Subject
from onnxproof.results import Case, Gap, NoiseKind, Signature
from onnxproof.runtimes import Session, ort, reference
from onnxproof.runtimes.session.execution import Clock, feed

Array = np.ndarray[Any, Any]
_LIMIT_S = 5.0
_MEMORY = 32
_STEPS = 10 ** (-45 / 20)


def open_fidelity(
    subject: Subject, reference: Reference, file: OnnxFile, signature: Signature, clock: Clock
) -> "Fidelity | None":
    """None unless the file quantizes; a fake-quantized module is held to its own rounding, which its re-runs know."""
    if not file.quantized:
        return None
    how = _quantizes(subject, reference)
    return (
        None
        if how == "fake"
        else Fidelity(file, signature, clock, NoiseKind.TWIN if how else NoiseKind.SIMULATED)
    )


def _quantizes(subject: Subject, reference: Reference) -> str:
    """How the reference itself quantizes: `integers`, `fake`, or not at all."""
    if subject.onnx is not None:
        return "fake" if read(subject.onnx).quantized else ""
    if any(
        "FakeQuant" in type(part).__name__ for part in getattr(subject.module, "modules", list)()
    ):
        return "integers"  # trained for integer kernels: what is served rounds its biases too
    from onnxproof.reference.dispatch import Mode

    class Watch(Mode):
        seen = ""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = str(func)
            if "quantize" in name and self.seen != "fake":
                self.seen = "fake" if "fake_quant" in name else "integers"
            return func(*args, **(kwargs or {}))

    watch = Watch()
    try:
        with watch:
            reference.run(reference.example())
    except Exception:  # a module that no watch can follow is taken for a float one
        return ""
    return watch.seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What the graph says on one case, and how much of the inputs it clips."""

    outputs: Sequence[Array | None]
    clipped: float | None


class Fidelity:
    """The simulation of one quantized file, with the usual cost of its quantization."""

    def __init__(
        self,
        file: OnnxFile,
        signature: Signature,
        clock: Clock,
        kind: NoiseKind = NoiseKind.SIMULATED,
    ) -> None:
        self.kind = kind
        self._path, self._signature, self._clock = file.path, signature, clock
        self._session: Session | None = None
        self._exact = True
        self._ranges = _input_ranges(file)
        self._usual: dict[str, list[float]] = defaultdict(list)

    def simulate(self, case: Case) -> Simulated | None:
        """Run the simulation; None where neither way can run this case, or where there is nothing in it: empty tensors abort some kernels."""
        if any(array.size == 0 for array in case.inputs.values()):
            return None
        fed = feed(case.inputs, self._signature)
        outputs = self._run(fed)
        return None if outputs is None else Simulated(outputs=outputs, clipped=self._clipped(fed))

    def noise(self, name: str, said: Array, truth: Array, *, ordinary: bool) -> Noise:
        """What quantization costs here, never less than half of what it usually costs: a case may be right by luck."""
        found = noise_of(said, truth.astype(np.float64), self.kind)
        if ordinary and len(self._usual[name]) < _MEMORY:
            self._usual[name].append(found.rms)
        usual = statistics.median(self._usual[name]) / 2 if self._usual[name] else 0.0
        if (
            self.kind is NoiseKind.TWIN and is_float(truth) and truth.size
        ):  # two honest integer implementations differ by single steps inside
            usual = max(usual, _STEPS * float(np.sqrt(np.mean(np.square(truth, dtype=np.float64)))))
        return replace(found, rms=max(found.rms, usual), worst=max(found.worst, 4 * usual))

    def weigh(
        self, gap: Gap, case: Case, candidate: Array, truth: Array, simulated: Simulated
    ) -> Gap:
        """The same gap with what it says about quality."""
        if not is_float(truth) or truth.shape != candidate.shape or not truth.size:
            return gap
        whole, worst = quality(truth.astype(np.float64), candidate.astype(np.float64))
        return replace(
            gap, sqnr_db=whole, channel_db=worst, clipped=simulated.clipped, ordinary=case.ordinary
        )

    def close(self) -> None:
        """Let the session go."""
        if self._session is not None:
            self._session.close()

    def _run(self, fed: Mapping[str, Array]) -> list[Array | None] | None:
        for _try in range(2):
            try:
                if self._session is None:
                    self._session = self._open()
                with self._clock.forward("simulation"):
                    found = dict(
                        zip(self._session.output_names, self._session.run(fed), strict=True)
                    )
                return [found.get(output.onnx_name or "") for output in self._signature.outputs]
            except (Refused, Crashed, ModelError):
                if not self._exact:
                    return None
                self._exact, self._session = False, None
        return None

    def _open(self) -> Session:
        if not self._exact:
            return ort.open(self._path, "disabled")
        session = reference.open(self._path, "float64")
        session.limit_s = _LIMIT_S
        return session

    def _clipped(self, fed: Mapping[str, Array]) -> float | None:
        """The share of the inputs' values beyond what the graph's first rounding can hold."""
        outside = total = 0
        for name, (low, high) in self._ranges.items():
            if name in fed and fed[name].size:
                outside, total = (
                    outside + int(((fed[name] < low) | (fed[name] > high)).sum()),
                    total + fed[name].size,
                )
        return outside / total if total else None


def quality(truth: Array, candidate: Array) -> tuple[float, float | None]:
    """SQNR in dB over all, and of the worst channel (the second axis) where there are several."""
    error = candidate - truth
    finite = np.isfinite(error)
    error, signal = np.where(finite, error, 0.0), np.where(np.isfinite(truth), truth, 0.0)
    whole = decibels(float((signal * signal).sum()), float((error * error).sum()))
    if truth.ndim < 2 or truth.shape[1] < 2:
        return whole, None
    axes = tuple(axis for axis in range(truth.ndim) if axis != 1)
    each = [
        decibels(s, e)
        for s, e in zip((signal**2).sum(axes).tolist(), (error**2).sum(axes).tolist(), strict=True)
    ]
    heard = [
        level for level, s in zip(each, (signal**2).sum(axes).tolist(), strict=True) if s > 0
    ]  # a channel that is always zero has no decibels
    return whole, min(heard, default=None)


def decibels(signal: float, error: float) -> float:
    """10 log10 of two energies; infinite where there is no error."""
    if error == 0.0:
        return math.inf
    return 10 * math.log10(signal / error) if signal > 0 else -math.inf


def _input_ranges(file: OnnxFile) -> dict[str, tuple[float, float]]:
    """Inputs that are rounded at once, with the real numbers that the rounding can hold (half a step of slack)."""
    known, ports = constants(file), {port.name for port in file.inputs}
    limits = {
        "uint8": (0, 255),
        "int8": (-128, 127),
        "uint16": (0, 65535),
        "int16": (-32768, 32767),
    }
    found = {}
    for node in file.model.graph.node:
        if (
            node.op_type == "QuantizeLinear"
            and node.input[0] in ports
            and len(node.input) > 2
            and {node.input[1], node.input[2]} <= set(known)
        ):
            scale, zero = known[node.input[1]], known[node.input[2]]
            if scale.size == 1 and str(zero.dtype) in limits:
                low, high = limits[str(zero.dtype)]
                step, middle = float(scale.reshape(-1)[0]), float(zero.reshape(-1)[0])
                found[node.input[0]] = ((low - middle - 0.75) * step, (high - middle + 0.75) * step)
    return found
