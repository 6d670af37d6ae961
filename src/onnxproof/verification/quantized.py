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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxproof.errors import Crashed, ModelError, Refused
from onnxproof.numerics.measure import Noise, is_float, noise_of
from onnxproof.onnxmodel.onnx_file import OnnxFile, constants, read
from onnxproof.options import Policy
from onnxproof.reference.protocol import Reference
from onnxproof.reference.subject import Subject
from onnxproof.results import Case, Finding, Gap, NoiseKind, Signature, judging
from onnxproof.runtimes import Session, ort, reference
from onnxproof.runtimes.session.execution import Clock, feed
from onnxproof.verification import open_ended
from onnxproof.verification.allowed_rounding import AllowedRounding
from onnxproof.verification.block_reading import keeps_blocks
from onnxproof.verification.rollout.language import divergence, scores_next_token
from onnxproof.verification.rounded_reference import RoundedReference

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]
_LIMIT_S = 5.0
"""Seconds for one case in the standard's evaluator (not measured)."""
_MOST_COSTS = 32
"""Ordinary cases that the usual cost of quantization is taken from (not measured)."""
_SINGLE_STEPS = 10 ** (-45 / 20)
"""Of an output's size, -45 dB: what single steps inside cost between two integer implementations (not measured)."""
_WORST_TO_RMS = 4.0
"""The worst element may be this many times the usual cost (not measured)."""
_INTEGER_LIMITS = {
    "uint8": (0, 255),
    "int8": (-128, 127),
    "uint16": (0, 65535),
    "int16": (-32768, 32767),
}
_SLACK = 0.75
"""Steps beyond the range of the integers that are not yet clipped: half a step is rounded to the last integer, and the rest is slack (not measured)."""


def open_fidelity(
    subject: Subject,
    reference: Reference,
    file: OnnxFile,
    signature: Signature,
    clock: Clock,
) -> "Fidelity | None":
    """None unless the file quantizes; a fake-quantized module is held to its own rounding, which its re-runs know."""
    if not file.quantized:
        return None
    rounded = None
    if keeps_blocks(file.model.graph):
        rounded = RoundedReference(reference, file)
    how = _how_it_quantizes(subject, reference)
    if how == "fake" or (rounded is not None and rounded.has_own_weights):
        return None
    kind = NoiseKind.SIMULATED
    if how == "integers":
        kind = NoiseKind.TWIN
    return Fidelity(file, signature, clock, kind, rounded)


def _how_it_quantizes(subject: Subject, reference: Reference) -> str:
    """How the reference itself quantizes: `integers`, `fake`, or not at all (empty)."""
    if subject.onnx is not None:
        if read(subject.onnx).quantized:
            return "fake"
        return ""
    layers: Iterable[Any] = getattr(subject.module, "modules", list)()
    if any("FakeQuant" in type(layer).__name__ for layer in layers):
        return "integers"  # trained for integer kernels: what is served rounds its biases too
    return _quantizing_calls(reference)


def _quantizing_calls(reference: Reference) -> str:
    """Which quantizing operators a forward pass calls: `integers`, `fake`, or none (empty)."""
    from onnxproof.reference.dispatch import Mode

    class Watch(Mode):
        seen = ""

        def __torch_dispatch__(
            self,
            func: Any,
            types: Any,
            args: Any = (),
            kwargs: Any = None,
        ) -> Any:
            name = str(func)
            if "quantize" in name and "fake_quant" in name:
                self.seen = "fake"
            elif "quantize" in name:
                self.seen = self.seen or "integers"
            return func(*args, **(kwargs or {}))

    watch = Watch()
    try:
        with watch:
            reference.run(reference.example())
    except Exception:  # a module whose calls can't be followed is taken for a float one
        return ""
    return watch.seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What the graph says on one case, and how much of the inputs it clips."""

    outputs: Sequence[Array | None]
    clipped: float | None
    unsaturated: Sequence[Array | None] | None = None
    """What it would say if no 16-bit rounding clipped; None where none is there, or where quality is not asked."""
    rounded: Sequence[Array] | None = None
    """What the reference says with its own weights in as few bits as the file's; None where these have 8, or where quality is not asked."""
    allowed: Sequence[Array | None] | None = None
    """What the graph says where every product rounds its input as its accuracy level allows; None where none is allowed to."""

    def allowance(self, place: int) -> float:
        """How far that is from what the graph means, rms: a kernel may be as far off."""
        exact = self.outputs[place]
        other = None if self.allowed is None else self.allowed[place]
        if exact is None or other is None or exact.shape != other.shape or not exact.size:
            return 0.0
        error = np.nan_to_num(other.astype(np.float64) - exact)
        return float(np.sqrt(np.mean(np.square(error))))


class Fidelity:
    """The simulation of one quantized file, with the usual cost of its quantization."""

    def __init__(
        self,
        file: OnnxFile,
        signature: Signature,
        clock: Clock,
        kind: NoiseKind = NoiseKind.SIMULATED,
        rounded: RoundedReference | None = None,
    ) -> None:
        self.kind = kind
        self._rounded = rounded
        self._path = file.path
        self._signature = signature
        self._clock = clock
        self._session: Session | None = None
        self._exact = True
        """Whether the standard's evaluator is used; ONNX Runtime without optimisation takes its place after a failure."""
        self._ranges = _input_ranges(file)
        self._allowed = AllowedRounding(file)
        self._open_ended = open_ended.OpenEndedSession(file)
        self._costs: dict[str, list[float]] = defaultdict(list)

    def simulate(self, case: Case) -> Simulated | None:
        """Run the simulation; None where neither way can run this case, or where there is nothing in it: empty tensors abort some kernels."""
        if any(array.size == 0 for array in case.inputs.values()):
            return None
        inputs = feed(case.inputs, self._signature)
        outputs = self._run(inputs)
        if outputs is None:
            return None
        unsaturated = None
        rounded = None
        asked = case.group == "data" or case.name == "example"
        if self._exact and asked:
            unsaturated = self._open_ended.run(inputs, self._signature, _LIMIT_S)
        if self._rounded is not None and asked:
            with self._clock.forward("simulation"):
                rounded = self._rounded.run(case.inputs)
        return Simulated(
            outputs=outputs,
            clipped=self._clipped(inputs),
            unsaturated=unsaturated,
            rounded=rounded,
            allowed=self._allowed.run(inputs, self._signature, _LIMIT_S),
        )

    def noise(
        self,
        name: str,
        simulated: Array,
        truth: Array,
        *,
        ordinary: bool,
        allowance: float = 0.0,
    ) -> Noise:
        """What quantization costs here, never less than half of what it usually costs, since a case may be right by luck, nor than what kernels are allowed."""
        cost = noise_of(simulated, truth.astype(np.float64), self.kind)
        costs = self._costs[name]
        if ordinary and len(costs) < _MOST_COSTS:
            costs.append(cost.rms)
        least = 0.0
        if costs:
            least = statistics.median(costs) / 2
        if self.kind is NoiseKind.TWIN and is_float(truth) and truth.size:
            # two correct integer implementations differ by single steps inside
            scale = float(np.sqrt(np.mean(np.square(truth, dtype=np.float64))))
            least = max(least, _SINGLE_STEPS * scale)
        least = max(least, allowance)
        rms = max(cost.rms, least)
        worst = max(cost.worst, _WORST_TO_RMS * least)
        return replace(cost, rms=rms, worst=worst)

    def weigh(
        self,
        gap: Gap,
        case: Case,
        candidate: Array,
        truth: Array,
        simulated: Simulated,
        place: int,
    ) -> Gap:
        """The same gap with what it says about quality; `place` is that of the output."""
        if not is_float(truth) or truth.shape != candidate.shape or not truth.size:
            return gap
        whole, worst = quality(truth.astype(np.float64), candidate.astype(np.float64))
        return replace(
            gap,
            sqnr_db=whole,
            channel_db=worst,
            clipped=simulated.clipped,
            unsaturated_db=_level(truth, simulated.unsaturated, place),
            rounding_db=_level(truth, simulated.rounded, place),
            kl=_mean_kl(case, truth, candidate),
            ordinary=case.ordinary,
        )

    def close(self) -> None:
        """Let the session go."""
        if self._session is not None:
            self._session.close()

    def _run(self, inputs: Inputs) -> list[Array | None] | None:
        for _attempt in range(2):
            try:
                if self._session is None:
                    self._session = self._open()
                with self._clock.forward("simulation"):
                    outputs = self._session.run(inputs)
                    by_name = dict(zip(self._session.output_names, outputs, strict=True))
                return [by_name.get(output.onnx_name or "") for output in self._signature.outputs]
            except (Refused, Crashed, ModelError):
                if not self._exact:
                    return None
                self._exact = False
                self._session = None
        return None

    def _open(self) -> Session:
        if not self._exact:
            return ort.open(self._path, "disabled")
        session = reference.open(self._path, "float64")
        session.limit_s = _LIMIT_S
        return session

    def _clipped(self, inputs: Inputs) -> float | None:
        """The share of the inputs' values beyond what the graph's first rounding can hold; None where it rounds no input."""
        outside = 0
        total = 0
        for name, (low, high) in self._ranges.items():
            if name in inputs:
                array = inputs[name]
                outside += int(((array < low) | (array > high)).sum())
                total += array.size
        if not total:
            return None
        return outside / total


def _mean_kl(case: Case, truth: Array, candidate: Array) -> float | None:
    """Of the next token; None for what is no language model."""
    if not scores_next_token(case.inputs, truth) or not np.isfinite(candidate).all():
        return None
    return float(divergence(truth, candidate).mean())


def _level(truth: Array, outputs: Sequence[Array | None] | None, place: int) -> float | None:
    """The SQNR of other answers; None where there are none."""
    output = None if outputs is None else outputs[place]
    if output is None or output.shape != truth.shape:
        return None
    whole, _ = quality(truth.astype(np.float64), output.astype(np.float64))
    return whole


def quality(truth: Array, candidate: Array) -> tuple[float, float | None]:
    """SQNR in dB over all, and of the worst channel (the second axis) where there are several."""
    error = candidate - truth
    error = np.where(np.isfinite(error), error, 0.0)
    signal = np.where(np.isfinite(truth), truth, 0.0)
    signal_energy = float((signal * signal).sum())
    error_energy = float((error * error).sum())
    whole = decibels(signal_energy, error_energy)
    if truth.ndim < 2 or truth.shape[1] < 2:
        return whole, None
    axes = tuple(axis for axis in range(truth.ndim) if axis != 1)
    signals = (signal**2).sum(axes).tolist()
    errors = (error**2).sum(axes).tolist()
    by_channel = [
        decibels(channel_signal, channel_error)
        for channel_signal, channel_error in zip(signals, errors, strict=True)
        if channel_signal > 0  # a channel that is always zero has no decibels
    ]
    return whole, min(by_channel, default=None)


def decibels(signal: float, error: float) -> float:
    """10 log10 of two energies; infinite where there is no error."""
    if error == 0.0:
        return math.inf
    if signal > 0:
        return 10 * math.log10(signal / error)
    return -math.inf


def quality_findings(gaps: Sequence[Gap], policy: Policy) -> list[Finding]:
    """What the user should know of a quantized file's answers beside the verdict."""
    return [*shared_clipping(gaps, policy), *few_bits(gaps, policy)]


def shared_clipping(gaps: Sequence[Gap], policy: Policy) -> list[Finding]:
    """Ordinary inputs that the quantized reference clips as the file does: no fault of the file, and yet its answers are worth little."""
    twins = [gap for gap in judging.asked(gaps) if gap.noise_kind is NoiseKind.TWIN]
    clipped = judging.clipped_share(twins)
    if clipped <= policy.clip_limit:
        return []
    return [
        Finding(
            code="inputs-clipped",
            what=f"{clipped:.2%} of the inputs lie beyond the range of the first rounding; the quantized reference clips them, too",
            help="verify the file against the float model: that says what the ranges cost, and calibrate with inputs as they are served",
        )
    ]


def few_bits(gaps: Sequence[Gap], policy: Policy) -> list[Finding]:
    """A loss that the few bits of the weights explain: no fault of the file, and yet the user should know it."""
    groups = judging.by_output(judging.asked(gaps))
    for group in groups:
        level = judging.pooled_db(group)
        rounded = judging.rounding_db(group)
        if rounded is None or level >= policy.drift_db or not judging.explained_by_bits(group):
            continue
        words = judging.level_words(level)
        kl = judging.pooled_kl(group)
        if kl is not None:
            words = f"{words}, at {kl:.3g} nats of KL a token"
        expected = judging.level_words(rounded)
        return [
            Finding(
                code="few-bits",
                what=f"`{group[0].output}` keeps {words}; the reference keeps {expected} with its own weights rounded to as few bits",
                help="the file is what its bits allow; your data say whether that is enough (`--data`); more bits or smaller blocks lose less",
            )
        ]
    return []


def _input_ranges(file: OnnxFile) -> dict[str, tuple[float, float]]:
    """Inputs that are rounded at once, with the real numbers that the rounding can hold."""
    known = constants(file)
    inputs = {port.name for port in file.inputs}
    ranges = {}
    for node in file.model.graph.node:
        if node.op_type != "QuantizeLinear" or node.input[0] not in inputs or len(node.input) < 3:
            continue
        scale = known.get(node.input[1])
        zero = known.get(node.input[2])
        if scale is not None and zero is not None and scale.size == 1:
            limits = _INTEGER_LIMITS.get(str(zero.dtype))
            if limits is not None:
                ranges[node.input[0]] = _real_range(
                    limits, float(scale.flat[0]), float(zero.flat[0])
                )
    return ranges


def _real_range(
    limits: tuple[int, int],
    step: float,
    zero: float,
) -> tuple[float, float]:
    """The real numbers that integers within these limits stand for."""
    low, high = limits
    return (low - zero - _SLACK) * step, (high - zero + _SLACK) * step
