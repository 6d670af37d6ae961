"""Rollouts of a folder: reference, truth and candidate step side by side, each with its own cache, fed with the same tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxproof.errors import BackendError
from onnxproof.numerics.measure import GapLabel, Noise, measure, noise_of, pool
from onnxproof.options import Policy
from onnxproof.packages.schedules import Feeder, Schedule
from onnxproof.packages.sides import FolderSide, HuggingFaceSide
from onnxproof.results import Gap, NoiseKind, Rollout, RolloutStep, Status, Verdict
from onnxproof.results.judging import judge_gap, severity
from onnxproof.system.deadline import Deadline
from onnxproof.verification.rollout.sides import LoopSide

Array = np.ndarray[Any, Any]
GROUP = "rollout"
_RERUNS = 3
"""Other roundings of the reference before a rollout raises an alarm (not measured)."""


@dataclass(slots=True)
class Rolled:
    """What one rollout gave."""

    rollout: Rollout
    gap: Gap | None = None
    """The worst of its steps."""
    file: str = ""
    """The file that was called at the first bad step."""
    refused: str = ""
    """Why the reference did not go on."""


@dataclass(slots=True)
class _Run:
    """What is known so far of one rollout."""

    along: list[RolloutStep] = field(default_factory=list)
    worst: Gap | None = None
    first_bad: int | None = None
    file: str = ""
    refused: str = ""
    same: int = 0
    places: int = 0
    kl: float = 0.0
    kl_noise: float = 0.0


class Roller:
    """Runs the rollouts of one folder on one backend."""

    def __init__(
        self,
        model: Any,
        sides: tuple[HuggingFaceSide, HuggingFaceSide, FolderSide],
        policy: Policy,
        *,
        backend: str,
        seed: int,
    ) -> None:
        self._model, self._policy, self._backend, self._seed = model, policy, backend, seed
        self._reference, self._truth, self._candidate = sides

    def roll(self, schedule: Schedule, deadline: Deadline) -> Rolled:
        """Run a schedule; what looks wrong is measured again beside other roundings of the reference."""
        run = self._roll(schedule, deadline, [])
        if run.first_bad is not None and run.worst is not None:
            reruns = [HuggingFaceSide(self._model, jitter=1000 * k + 1) for k in range(_RERUNS)]
            run = self._roll(schedule, Deadline.never(), reruns)
        return Rolled(
            rollout=self._rollout(schedule, run), gap=run.worst, file=run.file, refused=run.refused
        )

    def _roll(
        self, schedule: Schedule, deadline: Deadline, reruns: Sequence[HuggingFaceSide]
    ) -> _Run:
        run = _Run()
        sides: list[LoopSide] = [self._reference, self._truth, self._candidate, *reruns]
        for side in sides:
            side.reset(schedule.batch)
        feeder = Feeder(self._model, schedule, self._seed)
        begin, chosen = 0, None
        for place, length in enumerate(schedule.lengths):
            if place and deadline.passed:
                break
            feeds = feeder.feeds(begin, begin + length, chosen)
            real = feeder.real(begin, begin + length)
            begin += length
            try:
                reference = self._reference.step(feeds)["logits"]
            except Exception as why:  # the user's own model: it goes no further
                run.refused = f"{type(why).__name__}: {why}"[:200]
                break
            truth = self._truth.step(feeds)["logits"]
            samples = [side.step(feeds)["logits"] for side in reruns]
            chosen = reference[:, -1].argmax(-1)
            try:
                candidate = self._candidate.step(feeds)["logits"]
            except BackendError as why:
                self._refuse(run, schedule, place, begin, why.what)
                break
            values = _Values(reference, truth, samples, candidate)
            self._note(run, values.where(real), schedule, place, begin)
        return run

    def _refuse(self, run: _Run, schedule: Schedule, place: int, length: int, why: str) -> None:
        run.first_bad = place if run.first_bad is None else run.first_bad
        run.file = run.file or self._candidate.called
        run.along.append(RolloutStep(length=length, noise_ratio=float("inf")))
        run.worst = Gap(
            case=schedule.name,
            group=GROUP,
            backend=self._backend,
            output="logits",
            status=Status.REFUSED,
            detail=f"call {place}, {self._candidate.called}: {why}",
        )

    def _note(
        self, run: _Run, values: "_Values", schedule: Schedule, place: int, length: int
    ) -> None:
        """Measure one call, and keep it where it is the worst so far."""
        policy = self._policy
        label = GapLabel(case=schedule.name, group=GROUP, backend=self._backend, output="logits")
        gap = measure(
            label,
            reference=values.reference,
            truth=values.believed,
            candidate=values.candidate,
            noise=values.noise(),
            atol=policy.atol,
            rtol=policy.rtol,
        )
        gap = replace(gap, detail=gap.detail or f"call {place}", confirmed=bool(values.samples))
        if run.worst is None or severity(gap, policy) > severity(run.worst, policy):
            run.worst = gap
        if run.first_bad is None and judge_gap(gap, policy) in (Verdict.DRIFT, Verdict.DIVERGED):
            run.first_bad, run.file = place, self._candidate.called
        kl, agreement = None, None
        if gap.status in (Status.COMPARED, Status.DTYPE) and values.reference.size:
            kl, agreement = values.divergence(values.candidate), values.agreement()
            places = values.reference.size // values.reference.shape[-1]
            run.places += places
            run.same += round(agreement * places)
            run.kl += kl * places
            run.kl_noise += values.divergence(values.reference) * places
        error = gap.rms / gap.scale if gap.scale else gap.rms
        run.along.append(
            RolloutStep(
                length=length,
                noise_ratio=gap.noise_ratio,
                error=error,
                kl=kl,
                agreement=agreement,
            )
        )

    def _rollout(self, schedule: Schedule, run: _Run) -> Rollout:
        length = None
        if run.first_bad is not None:
            length = sum(schedule.lengths[: run.first_bad + 1])
        rollout = Rollout(
            schedule=schedule.name,
            backend=self._backend,
            steps=len(run.along),
            first_bad_step=run.first_bad,
            first_bad_length=length,
            along=tuple(run.along),
        )
        if not run.places:
            return rollout
        return replace(
            rollout,
            kl=run.kl / run.places,
            kl_noise=run.kl_noise / run.places,
            agreement=run.same / run.places,
        )


@dataclass(frozen=True, slots=True)
class _Values:
    """The logits of all sides for one call."""

    reference: Array
    truth: Array
    samples: Sequence[Array]
    candidate: Array

    def where(self, real: Array) -> "_Values":
        """Without what stands at padded places."""
        if real.all():
            return self
        pick = self.candidate[real] if self.candidate.shape[:2] == real.shape else self.candidate
        samples = [sample[real] for sample in self.samples]
        return _Values(self.reference[real], self.truth[real], samples, pick)

    @property
    def believed(self) -> Array | None:
        """The truth, unless it is not finite where the reference is: attention that is fixed in float32 gives NaN there."""
        lost = np.isfinite(self.reference) & ~np.isfinite(self.truth)
        return None if lost.any() else self.truth

    def noise(self) -> Noise:
        """The noise of this very call, from the truth and from every other rounding."""
        truth, kind = self.believed, NoiseKind.DOUBLE
        if truth is None:
            truth, kind = self.reference, NoiseKind.PERTURBED
        answers = [self.reference, *self.samples] if kind is NoiseKind.DOUBLE else self.samples
        return pool([noise_of(answer, truth, kind) for answer in answers])

    def agreement(self) -> float:
        """Share of places at which the best token is the reference's."""
        return float((self.reference.argmax(-1) == self.candidate.argmax(-1)).mean())

    def divergence(self, answer: Array) -> float:
        """Mean divergence of an answer's next token from the truth's, in nats."""
        truth = self.believed
        if truth is None:
            truth = self.reference
        wanted, given = _log_softmax(truth), _log_softmax(answer)
        return float((np.exp(wanted) * (wanted - given)).sum(-1).mean())


def _log_softmax(logits: Array) -> Array:
    wide = logits.astype(np.float64)
    wide = wide - wide.max(-1, keepdims=True)
    shifted: Array = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    return shifted
