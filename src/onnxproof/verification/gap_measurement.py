"""The gap of one output of one candidate on one case, and whether it is large enough to be looked into."""

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxproof.numerics import port_values
from onnxproof.numerics.measure import GapLabel, Noise, eps, measure
from onnxproof.options import Policy
from onnxproof.results import Case, Gap, NoiseKind, Signature, Status
from onnxproof.results.judging import beyond_noise
from onnxproof.runtimes.session.execution import Candidate
from onnxproof.verification.case_reference import CaseReference
from onnxproof.verification.quantized import Fidelity, Simulated

Array = np.ndarray[Any, Any]
RECHECK_SHARE = 0.4
"""Share of the limits from which on the noise is measured again: one comparison alone is a rough estimate (not measured)."""
ROUGH_KINDS = (NoiseKind.GRAPH, NoiseKind.WIDER, NoiseKind.PERTURBED)
"""Estimates whose re-runs don't know how each operation rounds: there an output's usual size sets the floor."""
FAR_BELOW = 1e-9
"""Elsewhere only what is this far below an output's usual size is nothing: denormal inputs, for one (not measured)."""
_MOST_SCALES = 16
"""Ordinary cases that the usual size of an output is taken from (not measured)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One output of one candidate beside the reference's answer to the same case."""

    reference: CaseReference
    candidate: Candidate
    place: int
    output: Array | None
    answered: Array | None = None
    """A detector's output in the order in which the candidate gave it; None where `output` is that."""

    @property
    def case(self) -> Case:
        """The case that both answered."""
        return self.reference.case

    @property
    def backend(self) -> str:
        """The candidate's backend."""
        return self.candidate.backend


class Scales:
    """The usual size of each output, from ordinary cases: an error far below it is nothing."""

    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = defaultdict(list)

    def add(self, gap: Gap) -> None:
        """Remember the scale of an ordinary case."""
        if len(self._seen[gap.output]) < _MOST_SCALES and gap.compared:
            self._seen[gap.output].append(gap.scale)

    def median(self, output: str) -> float:
        """The median so far; 0 where nothing was seen."""
        scales = self._seen[output]
        if not scales:
            return 0.0
        return statistics.median(scales)


class GapMeasurer:
    """Measures the outputs of all candidates of one verification."""

    def __init__(
        self,
        signature: Signature,
        policy: Policy,
        fidelity: Fidelity | None,
    ) -> None:
        self._signature = signature
        self._policy = policy
        self._fidelity = fidelity
        self._scales = Scales()

    def measure(self, comparison: Comparison) -> Gap:
        """The gap of one output; that of a quantized file is measured against the simulation of its graph."""
        reference = comparison.reference
        place = comparison.place
        if reference.simulated is not None and comparison.output is not None:
            return self._measure_quantized(comparison, reference.simulated, comparison.output)
        return self.measure_against(
            comparison,
            answer=reference.reference[place],
            truth=reference.truth[place],
            noise=reference.noise(place),
        )

    def measure_against(
        self,
        comparison: Comparison,
        *,
        answer: Array,
        truth: Array | None,
        noise: Noise,
    ) -> Gap:
        """The gap to another answer than the reference gave, with a truth and a noise of its own."""
        output = self._signature.outputs[comparison.place].name
        floor_scale = self._scales.median(output)
        if comparison.reference.kind not in ROUGH_KINDS:
            floor_scale = min(floor_scale * FAR_BELOW, self._tolerated_scale(answer.dtype))
        gap = measure(
            _label(comparison, output),
            reference=answer,
            truth=truth,
            candidate=comparison.output,
            noise=noise,
            floor_scale=floor_scale,
            atol=self._policy.atol,
            rtol=self._policy.rtol,
        )
        if self._signature.outputs[comparison.place].dtype == "str" and gap.worst is not None:
            detail = _texts_apart(answer, comparison.output, gap.worst)
            return replace(gap, detail=detail, max_abs=1.0, rms=1.0)  # strings have no size
        return gap

    def _tolerated_scale(self, dtype: np.dtype[Any]) -> float:
        """The usual size excuses nothing that the tolerance would not: outputs of 1e18 must not hide what happens at 1."""
        step = eps(dtype)
        if not step:
            return math.inf
        return self._policy.atol / (self._policy.noise_limit * step)

    def _measure_quantized(
        self, comparison: Comparison, simulated: Simulated, output: Array
    ) -> Gap:
        assert self._fidelity is not None
        place = comparison.place
        name = self._signature.outputs[place].name
        answer = QuantizedAnswer(
            case=comparison.case,
            place=place,
            reference=comparison.reference.reference[place],
            truth=comparison.reference.truth[place],
            simulated=simulated,
        )
        label = _label(comparison, name)
        return measure_quantized(label, answer, output, self._fidelity, self._policy)

    def is_suspicious(self, gap: Gap, share: float = 1.0) -> bool:
        """Whether a gap is beyond this share of the limits, or can't be measured in units of noise at all."""
        return is_suspicious(gap, self._policy, share)

    def learn_scale(self, gap: Gap) -> None:
        """Remember the size of an output on an ordinary case."""
        self._scales.add(gap)


def _texts_apart(answer: Array, output: Array | None, worst: tuple[int, ...]) -> str:
    """The two strings at the first place where they differ."""
    texts = [
        port_values.decode(int(array[worst])) for array in (answer, output) if array is not None
    ]
    return f"the reference says {' and the file '.join(repr(text) for text in texts)}"


def is_suspicious(gap: Gap, policy: Policy, share: float = 1.0) -> bool:
    """Whether a gap is beyond this share of the policy's limits, or can't be measured in units of noise at all."""
    tighter = replace(
        policy,
        noise_limit=policy.noise_limit * share,
        worst_limit=policy.worst_limit * share,
        runtime_limit=policy.runtime_limit * share,
    )
    unmeasurable = gap.status in (Status.SHAPE, Status.MISSING) or gap.lost > 0
    return unmeasurable or beyond_noise(gap, tighter)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedAnswer:
    """What the reference and a quantized graph by itself say to one output of one case."""

    case: Case
    place: int
    reference: Array
    truth: Array | None
    simulated: Simulated


def measure_quantized(
    label: GapLabel, answer: QuantizedAnswer, output: Array, fidelity: Fidelity, policy: Policy
) -> Gap:
    """The runtime against the simulated graph, in units of what quantization costs; and the quality of the answer."""
    simulated, place = answer.simulated, answer.place
    truth = answer.truth
    if truth is None:
        truth = answer.reference
    simulated_output = simulated.outputs[place]
    if simulated_output is None or simulated_output.shape != truth.shape:
        simulated_output = output
    noise = fidelity.noise(
        label.output,
        simulated_output,
        truth,
        ordinary=answer.case.ordinary,
        allowance=simulated.allowance(place),
    )
    gap = measure(
        label,
        reference=answer.reference,
        truth=simulated_output,
        candidate=output,
        noise=noise,
        atol=policy.atol,
        rtol=policy.rtol,
    )
    return fidelity.weigh(gap, answer.case, output, truth, simulated, place)


def _label(comparison: Comparison, output: str) -> GapLabel:
    case = comparison.case
    return GapLabel(case=case.name, group=case.group, backend=comparison.backend, output=output)
