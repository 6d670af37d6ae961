"""The gap of one output of one replayed case: measured as in a verification, by the noise that was confirmed where the reference ran.

The steps of `verification/domain_classification`, as far as they can be taken without the reference:
1. Empty: the case, or the reference's answer, is empty.
2. Infinity: rounding decides whether the reference is finite.
3. The inputs are not finite.
4. A decision inside the model flips under louder rounding: the gap is measured by the noise of that.
5. Masks: the two differ only in what a mask hides. (Cases that ties decide are in no bundle.)
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxproof.bundle.cases import StoredCase, StoredOutput
from onnxproof.numerics.measure import GapLabel, Noise, is_float, measure
from onnxproof.options import Policy
from onnxproof.results import Domain, Gap, NoiseKind, Status
from onnxproof.verification.gap_measurement import (
    FAR_BELOW,
    ROUGH_KINDS,
    QuantizedAnswer,
    is_suspicious,
    measure_quantized,
)
from onnxproof.verification.quantized import Fidelity, Simulated

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparer:
    """Measures the outputs of all candidates of one replay."""

    policy: Policy
    usual_scale: Mapping[str, float]
    half: str = ""
    fidelity: Fidelity | None = None

    def compare(
        self,
        stored: StoredCase,
        place: int,
        label: GapLabel,
        output: Array | None,
        simulated: Simulated | None,
    ) -> Gap:
        """The gap with its domain; without one it counts."""
        answer = stored.outputs[place]
        if simulated is not None and self.fidelity is not None and output is not None:
            gap = self._measure_quantized(stored, place, label, output, simulated)
        else:
            gap = self._measure(label, answer, output, answer.noise)
        if is_suspicious(gap, self.policy):
            gap = self._classify(gap, stored, answer, label, output)
        return replace(gap, confirmed=True, void=answer.void)

    def _measure(
        self, label: GapLabel, answer: StoredOutput, output: Array | None, noise: Noise
    ) -> Gap:
        floor_scale = self.usual_scale.get(label.output, 0.0)
        if noise.kind not in ROUGH_KINDS:
            floor_scale *= FAR_BELOW
        return measure(
            label,
            reference=answer.reference,
            truth=answer.truth,
            candidate=output,
            noise=noise,
            floor_scale=floor_scale,
            atol=self.policy.atol,
            rtol=self.policy.rtol,
        )

    def _measure_quantized(
        self,
        stored: StoredCase,
        place: int,
        label: GapLabel,
        output: Array,
        simulated: Simulated,
    ) -> Gap:
        assert self.fidelity is not None
        answer = stored.outputs[place]
        question = QuantizedAnswer(
            case=stored.case,
            place=place,
            reference=answer.reference,
            truth=answer.truth,
            simulated=simulated,
        )
        return measure_quantized(label, question, output, self.fidelity, self.policy)

    def _classify(
        self,
        gap: Gap,
        stored: StoredCase,
        answer: StoredOutput,
        label: GapLabel,
        output: Array | None,
    ) -> Gap:
        domain = self._domain(gap, stored, answer)
        if domain is not None:
            return replace(gap, domain=domain)
        if output is None or gap.status is Status.SHAPE or gap.lost:
            return gap
        if answer.loud is not None:  # 4
            louder = self._measure(label, answer, output, answer.loud)
            if not is_suspicious(louder, self.policy):
                return louder
        return self._measure_visible(label, answer, output) or gap  # 5

    def _domain(self, gap: Gap, stored: StoredCase, answer: StoredOutput) -> Domain | None:
        """Steps 1 to 3."""
        domain = stored.case.domain
        if gap.status is Status.SHAPE and answer.reference.size == 0:  # 1
            return Domain.EMPTY
        if domain is Domain.EMPTY:
            return domain
        if answer.undecided and (gap.lost or self.half):  # 2
            return Domain.INF
        return None if _absorbed(gap, stored) else domain  # 3

    def _measure_visible(self, label: GapLabel, answer: StoredOutput, output: Array) -> Gap | None:
        """The gap of what no mask hides, where that agrees; None where it does not, or nothing is hidden."""
        if answer.excused is None or answer.visible is None:
            return None
        keep = ~answer.excused.astype(bool)
        truth = answer.truth
        if truth is not None:
            truth = truth[keep]
        part = replace(answer, reference=answer.reference[keep], truth=truth)
        gap = self._measure(label, part, output[keep], answer.visible)
        if gap.compared and is_suspicious(gap, self.policy):
            return None
        return replace(gap, domain=Domain.MASKED, worst=None)


def _absorbed(gap: Gap, stored: StoredCase) -> bool:
    """True when the reference absorbed the NaN of its inputs, and the candidate did not."""
    finite = all(
        not is_float(output.reference)
        or bool(np.isfinite(output.reference.astype(np.float64)).all())
        for output in stored.outputs
    )
    return bool(gap.lost) and stored.case.domain is Domain.NAN and finite


def simulation_kind(kind: NoiseKind | None) -> NoiseKind | None:
    """The kind, if it is one of a simulation: a manifest may say anything."""
    if kind in (NoiseKind.SIMULATED, NoiseKind.TWIN):
        return kind
    return None
