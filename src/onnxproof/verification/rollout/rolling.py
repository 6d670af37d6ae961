"""One rollout: reference, truth and candidate step side by side, each with its own states.

All sides take a call before any takes the next, so that nothing is held but the states and a few numbers for each call.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from onnxproof.errors import BackendError
from onnxproof.numerics.measure import GapLabel, is_float, measure
from onnxproof.options import Policy
from onnxproof.results import Gap, NoiseKind, Status
from onnxproof.results.judging import severity
from onnxproof.results.rollouts import RolloutStep
from onnxproof.system.deadline import Deadline
from onnxproof.verification.rollout.answers import (
    Answers,
    Array,
    Arrays,
    Values,
    is_bad,
    is_other,
    measured_by_quality,
)
from onnxproof.verification.rollout.language import LanguageMeter
from onnxproof.verification.rollout.model_sides import NoAnswer
from onnxproof.verification.rollout.schedules import Schedule
from onnxproof.verification.rollout.sides import Feeding, LoopCalls, LoopSide

GROUP = "rollout"
Record = Callable[[Arrays, Answers, Array], None]
"""Gets the inputs of a call without the states, the answers of all sides, and which places are real."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Who takes part in a rollout."""

    reference: LoopSide
    truth: LoopSide | None
    candidate: LoopSide
    noisy: tuple[LoopSide, ...] = ()
    """Other roundings of the reference: samples of its noise."""
    backend: str = "ort"
    kind: NoiseKind = NoiseKind.DOUBLE
    allowed_db: float | None = None
    """Of a quantized candidate: the ratio of signal to error that still passes; rounding is no measure for it."""
    shares_states: bool = True
    """Whether the candidate's states have the reference's shapes and dtypes."""


@dataclass(slots=True)
class Rolled:
    """What one rollout gave."""

    schedule: Schedule
    along: list[RolloutStep] = field(default_factory=list)
    worst: dict[str, Gap] = field(default_factory=dict)
    """The worst gap of each answer."""
    first_bad: int | None = None
    bad_ratio: float = 0.0
    language: LanguageMeter = field(default_factory=LanguageMeter)
    states_differ: dict[str, int] = field(default_factory=dict)
    """The states that are others than the reference's, and the first call at which they are."""
    guilty: tuple[int, str, dict[str, Array]] | None = None
    """The first call that is wrong from the reference's own states: which, what of it (`step` or `cache`), and its inputs."""
    file: str = ""
    """The file that answered the first bad call, of a model of several files."""
    refused: str = ""
    """Why the reference did not go on."""

    @property
    def steps(self) -> int:
        """Calls that were compared."""
        return len(self.along)

    @property
    def first_bad_length(self) -> int | None:
        """Tokens or frames consumed up to and with the first bad call."""
        if self.first_bad is None:
            return None
        return sum(self.schedule.lengths[: self.first_bad + 1])

    def note(
        self,
        place: int,
        gaps: Mapping[str, Gap],
        policy: Policy,
        language: tuple[float, float] | None = None,
    ) -> None:
        """Add what one call gave: its gaps by answer, and its divergence and agreement."""
        worst = max(gaps.values(), key=lambda gap: severity(gap, policy), default=None)
        if worst is None:
            return
        kl, agreement = language or (None, None)
        error = worst.rms / worst.scale if worst.scale else worst.rms
        self.along.append(
            RolloutStep(
                length=sum(self.schedule.lengths[: place + 1]),
                noise_ratio=worst.noise_ratio,
                error=error,
                kl=kl,
                agreement=agreement,
            )
        )
        for name, gap in gaps.items():
            known = self.worst.get(name)
            if known is None or severity(gap, policy) > severity(known, policy):
                self.worst[name] = replace(gap, detail=gap.detail or f"call {place}")
        if is_bad(worst, policy) and self.first_bad is None:
            self.first_bad, self.bad_ratio = place, worst.noise_ratio

    def refuse(self, place: int, why: str, backend: str, answers: Sequence[str]) -> None:
        """Add a call that the candidate does not take."""
        self.first_bad = place if self.first_bad is None else self.first_bad
        length = sum(self.schedule.lengths[: place + 1])
        self.along.append(RolloutStep(length=length, noise_ratio=float("inf")))
        for name in answers:
            self.worst[name] = Gap(
                case=self.schedule.name,
                group=GROUP,
                backend=backend,
                output=name,
                status=Status.REFUSED,
                detail=f"call {place}: {why}",
            )


class Roller:
    """Runs rollouts of one loop."""

    def __init__(self, calls: LoopCalls, policy: Policy) -> None:
        self._calls, self.policy = calls, policy

    def roll(
        self,
        schedule: Schedule,
        sides: Sides,
        deadline: Deadline,
        *,
        probe: bool = False,
        stop_when_bad: int | None = None,
        record: Record | None = None,
    ) -> Rolled:
        """Run a schedule; `probe` also runs the candidate from the reference's own states at every call, `record` gets what every call was fed and answered."""
        rolled = Rolled(schedule=schedule)
        everyone = [sides.reference, sides.truth, sides.candidate, *sides.noisy]
        present = [side for side in everyone if side is not None]
        for side in present:
            side.reset(schedule.batch)
        feeder = self._calls.feeding(schedule)
        run = _Run(self._calls, self.policy, sides, feeder, rolled, record)
        begin = 0
        for place, length in enumerate(schedule.lengths):
            if deadline.passed and place:
                break
            if not run.step(place, begin, begin + length, probe=probe):
                break
            begin += length
            if _is_late(rolled, place, stop_when_bad):
                break
        return rolled

    def go_on(
        self, inputs: Arrays, sides: Sides, feeder: Feeding, begin: int, lengths: Sequence[int]
    ) -> Rolled:
        """Every side takes a call with these inputs, states included, and goes on from there with its own."""
        states = {name: inputs[name] for name in self._calls.state_names}
        feeds = {name: array for name, array in inputs.items() if name not in states}
        batch = len(next(iter(feeds.values())))
        schedule = Schedule(batch=batch, lengths=tuple(lengths))
        rolled = Rolled(schedule=schedule)
        everyone = [sides.reference, sides.truth, sides.candidate, *sides.noisy]
        for side in everyone:
            if side is not None:
                _, side.states = side.call(feeds, states)
        run = _Run(self._calls, self.policy, sides, feeder, rolled)
        for place, length in enumerate(lengths):
            if not run.step(place, begin, begin + length, probe=False):
                break
            begin += length
        return rolled


def _is_late(rolled: Rolled, place: int, stop_when_bad: int | None) -> bool:
    """Whether so many calls have followed the first bad one."""
    if rolled.first_bad is None or stop_when_bad is None:
        return False
    return place >= rolled.first_bad + stop_when_bad


class _Run:
    """The calls of one rollout."""

    def __init__(
        self,
        calls: LoopCalls,
        policy: Policy,
        sides: Sides,
        feeder: Feeding,
        rolled: Rolled,
        record: Record | None = None,
    ) -> None:
        self._calls, self._policy, self._sides = calls, policy, sides
        self._record = record
        self._feeder, self._rolled = feeder, rolled
        self._truth = sides.truth
        self._noisy = list(sides.noisy)
        self._chosen: Array | None = None

    def step(self, place: int, begin: int, end: int, *, probe: bool) -> bool:
        """One call of all sides; False where the rollout ends with it."""
        sides, rolled = self._sides, self._rolled
        before = dict(sides.reference.states)
        held = self._calls.held(before)
        feeds = self._feeder.feeds(begin, end, held, self._chosen)
        try:
            reference = sides.reference.step(feeds)
        except Exception as why:  # the user's own module: it goes no further
            rolled.refused = f"{type(why).__name__}: {why}"[:200]
            return False
        truth = self._true_answers(feeds)
        samples = self._samples(feeds)
        self._choose(reference, begin, end)
        try:
            candidate = sides.candidate.step(feeds)
        except (BackendError, NoAnswer) as why:
            rolled.refuse(place, str(why)[:300], sides.backend, self._calls.answers)
            rolled.file = rolled.file or sides.candidate.called
            if sides.shares_states:
                rolled.guilty = rolled.guilty or (place, "step", {**feeds, **before})
            return False
        answers = Answers(reference=reference, truth=truth, samples=samples, candidate=candidate)
        gaps = self._gaps(answers, begin, end)
        language = self._measure_language(answers, gaps, begin, end)
        rolled.note(place, gaps, self._policy, language)
        if rolled.first_bad == place:
            rolled.file = sides.candidate.called
        if self._record is not None:
            self._record(feeds, answers, self._feeder.real(begin, end))
        self._compare_states(place)
        if probe and sides.shares_states and rolled.guilty is None:
            self._probe(place, feeds, before, answers, begin, end)
        return True

    def _true_answers(self, feeds: Arrays) -> dict[str, Array]:
        """The truth's answers; none from the first call on that it can't take."""
        if self._truth is None:
            return {}
        try:
            return self._truth.step(feeds)
        except Exception:  # the user's own module in float64
            self._truth = None
            return {}

    def _samples(self, feeds: Arrays) -> list[dict[str, Array]]:
        samples = []
        for side in list(self._noisy):
            try:
                samples.append(side.step(feeds))
            except Exception:  # one sample less
                self._noisy.remove(side)
        return samples

    def _choose(self, reference: Arrays, begin: int, end: int) -> None:
        """The tokens that the reference would go on with."""
        logits = reference.get(self._calls.logits or "")
        if logits is None:
            return
        last = self._last_places(logits, begin, end)
        self._chosen = np.nan_to_num(last).argmax(-1)

    def _last_places(self, logits: Array, begin: int, end: int) -> Array:
        """The logits of every row's last real place."""
        if logits.ndim < 3 or logits.shape[1] != end - begin:
            return logits.reshape(-1, logits.shape[-1])[-self._rolled.schedule.batch :]
        real = self._feeder.real(begin, end)
        last = end - begin - 1 - real[:, ::-1].argmax(1)
        return np.asarray(logits[np.arange(len(logits)), last])

    def _gaps(self, answers: Answers, begin: int, end: int) -> dict[str, Gap]:
        real = self._feeder.real(begin, end)
        gaps = {}
        for name in self._calls.answers:
            if name in answers.reference:
                gaps[name] = self._gap(name, answers.of(name, real))
        return gaps

    def _gap(self, name: str, values: Values) -> Gap:
        schedule, sides = self._rolled.schedule, self._sides
        label = GapLabel(case=schedule.name, group=GROUP, backend=sides.backend, output=name)
        gap = measure(
            label,
            reference=values.reference,
            truth=values.truth,
            candidate=values.candidate,
            noise=values.noise(sides.kind),
            atol=self._policy.atol,
            rtol=self._policy.rtol,
        )
        if sides.allowed_db is None or not is_float(values.reference):
            return gap
        return measured_by_quality(gap, sides.allowed_db, self._policy)

    def _measure_language(
        self, answers: Answers, gaps: Mapping[str, Gap], begin: int, end: int
    ) -> tuple[float, float] | None:
        name = self._calls.logits
        if name is None or name not in gaps or gaps[name].status is not Status.COMPARED:
            return None
        values = answers.of(name, self._feeder.real(begin, end))
        assert values.candidate is not None
        truth = values.reference if values.truth is None else values.truth
        if not np.isfinite(truth).all():
            truth = values.reference
        noise = 2 * self._policy.noise_limit * gaps[name].noise
        classes = values.reference.shape[-1]
        last = self._last_places(answers.reference[name], begin, end)
        other = self._last_places(answers.candidate[name], begin, end)
        self._rolled.language.choose(last, other, noise)
        return self._rolled.language.add(
            values.reference.reshape(-1, classes),
            truth.reshape(-1, classes),
            values.candidate.reshape(-1, classes),
            noise,
        )

    def _compare_states(self, place: int) -> None:
        """Which states are no longer the reference's: other shapes, dtypes or values beyond rounding."""
        sides, differ = self._sides, self._rolled.states_differ
        wide = self._truth.states if self._truth is not None else {}
        for name in self._calls.state_names:
            if name in differ:
                continue
            own, other = sides.reference.states[name], sides.candidate.states[name]
            if is_other(own, wide.get(name), other, self._policy):
                differ[name] = place

    def _probe(
        self,
        place: int,
        feeds: Arrays,
        before: dict[str, Array],
        answers: Answers,
        begin: int,
        end: int,
    ) -> None:
        """The candidate from the reference's own states: wrong answers are the step's, wrong states the cache's."""
        sides, rolled = self._sides, self._rolled
        try:
            given, following = sides.candidate.call(feeds, before)
        except (BackendError, NoAnswer):  # the file refuses what the reference holds
            rolled.guilty = (place, "step", {**feeds, **before})
            return
        gaps = self._gaps(replace(answers, candidate=given), begin, end)
        if any(is_bad(gap, self._policy) for gap in gaps.values()):
            rolled.guilty = (place, "step", {**feeds, **before})
            return
        wide = self._truth.states if self._truth is not None else {}
        for name, state in sides.reference.states.items():
            if is_other(state, wide.get(name), following[name], self._policy):
                rolled.guilty = (place, "cache", {**feeds, **before})
                return
