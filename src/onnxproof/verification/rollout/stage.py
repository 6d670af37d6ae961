"""The rollouts of one verification.

1. Find the loop, before inputs and outputs are paired: states may have another layout in the file.
2. Understand what drives it, let the reference confirm it, and keep the relations between its dims in every case.
3. Roll every schedule that the time allows, each side in its own loop; confirm what looks wrong with other roundings.
4. Where a rollout is wrong: is it the call or the states? The call is handed on as a case, and the rollout is made smaller.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxproof.onnxmodel.onnx_file import OnnxFile, Port
from onnxproof.options import Policy
from onnxproof.reference.protocol import Reference
from onnxproof.results import Case, Finding, Gap, InputInfo, NoiseKind, Signature
from onnxproof.results.rollouts import Rollout
from onnxproof.runtimes.session.execution import Candidate
from onnxproof.system.deadline import Deadline
from onnxproof.verification.rollout import model_sides
from onnxproof.verification.rollout.confirmed_rolls import RERUNS, roll_confirmed, summarize
from onnxproof.verification.rollout.driving import Drive, Driven
from onnxproof.verification.rollout.feeding import DrivenCalls, Feeder
from onnxproof.verification.rollout.recorded import RecordedRollout, record
from onnxproof.verification.rollout.rolling import GROUP, Rolled, Roller, Sides
from onnxproof.verification.rollout.schedules import Schedule, plan
from onnxproof.verification.rollout.size_constants import declared_context, size_constants
from onnxproof.verification.rollout.state_layout import (
    in_own_layout,
    is_eight_bits,
    shares_layout,
)

Array = np.ndarray[Any, Any]
_OWED = 5
"""Schedules that every loop is owed: a long one, padded ones, uneven calls, an empty past."""
_CALLS_TO_GO_ON = 4
"""Calls after a case whose states differ while its answers are right."""
_NARROW_FLOATS = ("float16", "bfloat16")


@dataclass(slots=True)
class Rollouts:
    """What all rollouts gave."""

    rollouts: list[Rollout] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    """Single calls that are wrong from the reference's own states."""
    findings: list[Finding] = field(default_factory=list)
    layouts: dict[str, list[str]] = field(default_factory=dict)
    """By backend: the states that it keeps in a layout of its own, while its answers are right."""
    padded: dict[str, list[str]] = field(default_factory=dict)
    """By backend: the states that differ at padded places, which nobody reads."""
    complete: bool = True

    @property
    def right(self) -> bool:
        """Whether there were rollouts, and all of them are right."""
        return bool(self.rollouts) and all(
            rollout.first_bad_step is None for rollout in self.rollouts
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the rollouts of a verification work with."""

    reference: Reference
    signature: Signature
    file: OnnxFile
    policy: Policy
    seed: int = 0
    steps: int | None = None
    announce: Callable[[str], None] = lambda name: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When rollouts end: the first few have more time than the others, so that a busy machine does not change what is seen."""

    usual: Deadline
    owed: Deadline


class LoopRunner:
    """Rolls one loop on all candidates."""

    def __init__(self, driven: Driven, context: Context) -> None:
        self._driven, self._context = driven, context
        self._names = tuple(output.name for output in context.signature.outputs)
        self._roller = Roller(DrivenCalls(driven=driven), context.policy)
        self.states = driven.loop.outputs
        """The outputs that hold state."""

    def run(
        self,
        candidates: Sequence[Candidate],
        limits: Limits,
        only: Sequence[Schedule] = (),
    ) -> Rollouts:
        """Every schedule on every candidate, as long as the time lasts; the first one is always run."""
        result = Rollouts()
        sizes = size_constants(self._driven.space, self._driven.loop, self._context.reference)
        session = self._context.reference.session
        config = getattr(session.module, "config", None) if session is not None else None
        freedom = self._driven.freedom.within(declared_context(config))
        schedules = list(only) or list(plan(freedom, sizes, self._context.steps))
        for candidate in candidates:
            for place, schedule in enumerate(schedules):
                deadline = limits.owed if place < _OWED else limits.usual
                if deadline.passed and place:
                    result.complete = False
                    break
                self._context.announce(schedule.name)
                self._run_one(schedule, candidate, deadline, result)
        result.findings.append(self._finding())
        result.findings += self._layout_findings(result)
        return result

    def _run_one(
        self, schedule: Schedule, candidate: Candidate, deadline: Deadline, result: Rollouts
    ) -> None:
        sides = self._sides(candidate)
        rolled = roll_confirmed(self._roller, schedule, sides, deadline, self._reruns)
        if not rolled.steps:
            if rolled.refused:
                result.findings.append(_refused(schedule, rolled.refused))
            return
        rollout = summarize(rolled, candidate.backend)
        if rolled.first_bad is None:
            kept = result.padded if schedule.side else result.layouts
            names = kept.setdefault(candidate.backend, [])
            first = [name for name, step in rolled.states_differ.items() if step == 0]
            names += [name for name in first if name not in names]
        else:
            smallest = self._smaller(schedule, sides, rolled, deadline)
            rollout = replace(rollout, smallest=smallest.name)
            self._hand_on(rolled, result)
        result.rollouts.append(rollout)
        result.gaps += rolled.worst.values()

    def record(
        self, rollouts: Sequence[Rollout], candidate: Candidate, most_bytes: int
    ) -> Iterator[RecordedRollout]:
        """The reference's side of these rollouts, shortened, as long as they fit."""
        sides = self._sides(candidate)
        sides = replace(sides, noisy=(*sides.noisy, *self._reruns(RERUNS - 1)))
        stand_in = model_sides.reference_side(self._context.reference, self._driven, self._names)
        yield from record(self._driven, self._roller, sides, stand_in, rollouts, most_bytes)

    def goes_on_right(self, case: Case, candidate: Candidate) -> bool:
        """Whether both sides, each with the states that the case gave it, go on alike: then what differs in them is read by nobody."""
        driven = self._driven
        states = {name: case.inputs[name] for name in driven.loop.inputs}
        consumed = driven.consumes
        if driven.chunk is not None:
            consumed = case.sizes.get(driven.chunk, consumed)
        begin = driven.held(states) + consumed
        sides = self._sides(candidate)
        sides = replace(sides, noisy=(*sides.noisy, *self._reruns(RERUNS)))
        step = driven.freedom.chunk or 1
        lengths = (step,) * _CALLS_TO_GO_ON
        batch = driven.space.signature.dim(driven.batch).example if driven.batch else 1
        batch = case.sizes.get(driven.batch or "", batch)
        mask = _extended_mask(driven, case, batch, begin, sum(lengths))
        context = {
            name: case.inputs[name]
            for name, drive in driven.drives.items()
            if drive is Drive.CONTEXT
        }
        schedule = Schedule(batch=batch, lengths=(begin, *lengths))
        feeder = Feeder(driven, schedule, mask=mask, context=context)
        try:
            rolled = self._roller.go_on(case.inputs, sides, feeder, begin, lengths)
        except Exception:  # a call that one of the sides does not take
            return False
        return rolled.steps > 0 and rolled.first_bad is None

    def _sides(self, candidate: Candidate) -> Sides:
        context, driven = self._context, self._driven
        reference = context.reference
        ports = {port.name: port for port in context.file.inputs}
        states = [self._port(pair.input, ports) for pair in driven.loop.states]
        shares = all(shares_layout(info, port) for info, port in states)

        rows = self._rows(ports)

        def initial(batch: int) -> dict[str, Array]:
            own = driven.initial(batch)
            return {
                info.name: in_own_layout(own[info.name], port, batch, rows) for info, port in states
            }

        noisy: list[model_sides.ModelSide] = []
        half = context.file.half
        if half is not None:
            noisy.append(model_sides.half_side(reference, driven, self._names, half))
        narrow = {port.dtype for _, port in states if port is not None} & {*_NARROW_FLOATS}
        wide = {info.dtype for info, _ in states}
        for dtype in sorted(narrow - wide - {half}):
            noisy.append(model_sides.half_side(reference, driven, self._names, dtype))
            noisy.append(model_sides.rounded_side(reference, driven, self._names, dtype))
        allowed = None
        if context.file.quantized or any(is_eight_bits(info, port) for info, port in states):
            allowed = context.policy.drift_db
        return Sides(
            reference=model_sides.reference_side(reference, driven, self._names),
            truth=model_sides.truth_side(reference, driven, self._names),
            candidate=model_sides.candidate_side(candidate, driven, self._names, initial),
            noisy=tuple(noisy),
            backend=candidate.backend,
            kind=NoiseKind.DOUBLE,
            allowed_db=allowed,
            shares_states=shares,
        )

    def _rows(self, ports: Mapping[str, Port]) -> str | None:
        """What the file calls the dim of rows: its name in an input that holds no state."""
        driven = self._driven
        for name in driven.drives:
            info, port = self._port(name, ports)
            if driven.batch not in info.dims or port is None or port.dims is None:
                continue
            own = port.dims[info.dims.index(driven.batch)]
            if isinstance(own, str) and len(port.dims) == len(info.dims):
                return own
        return None

    def _port(self, name: str, ports: Mapping[str, Port]) -> tuple[InputInfo, Port | None]:
        info = next(info for info in self._context.signature.inputs if info.name == name)
        return info, ports.get(info.onnx_name or "")

    def _reruns(self, count: int) -> list[model_sides.ModelSide]:
        seed = self._context.seed
        return [
            model_sides.rerun_side(
                self._context.reference, self._driven, self._names, seed + 100_000 * k
            )
            for k in range(1, count + 1)
        ]

    def _smaller(
        self, schedule: Schedule, sides: Sides, rolled: Rolled, deadline: Deadline
    ) -> Schedule:
        """The smallest of a few schedules that still shows the fault."""
        steps, total = (rolled.first_bad or 0) + 1, rolled.first_bad_length or 1
        shortest = schedule.cut(steps)
        tries = [replace(shortest, batch=1)] if 1 in self._driven.freedom.batches else []
        if self._driven.freedom.chunk is None and total > 1:
            tries = [
                replace(each, lengths=lengths)
                for lengths in ((total,), (total - 1, 1))
                for each in [*tries, shortest]
            ] + tries
        for smaller in tries:
            if deadline.passed:
                break
            if self._roller.roll(smaller, sides, deadline).first_bad is not None:
                return smaller
        return shortest

    def _hand_on(self, rolled: Rolled, result: Rollouts) -> None:
        if rolled.guilty is None:
            return
        place, _, inputs = rolled.guilty
        lengths = rolled.schedule.lengths
        held = sum(lengths[:place])
        sizes = self._driven.sizes(rolled.schedule.batch, lengths[place], held)
        result.cases.append(
            Case(
                name=f"{rolled.schedule.name}@{place}",
                group=GROUP,
                about=f"call {place} of a rollout, from the reference's own states",
                inputs=inputs,
                sizes=sizes,
                ordinary=True,
            )
        )

    def _finding(self) -> Finding:
        return Finding(
            code="loop",
            what=self._driven.words(),
            help="`--loop OUT=IN` says otherwise, `--no-loop` leaves it out",
        )

    def _layout_findings(self, result: Rollouts) -> list[Finding]:
        findings = []
        for backend, names in result.layouts.items():
            if names:
                shown = ", ".join(f"`{name}`" for name in names[:4])
                findings.append(
                    Finding(
                        code="state-layout",
                        what=f"{backend}: the file keeps {shown} in a layout of its own, and its own loop is right at every call",
                        help="states of one side can't be handed to the other",
                    )
                )
        for backend, names in result.padded.items():
            rest = [name for name in names if name not in result.layouts.get(backend, [])]
            if rest:
                findings.append(unread_states(backend, rest))
        return findings


def unread_states(backend: str, names: Sequence[str]) -> Finding:
    """States that differ where nobody reads them."""
    shown = ", ".join(f"`{name}`" for name in names[:4])
    return Finding(
        code="state-unread",
        what=f"{backend}: {shown} differ where no later call reads them (padded places), and the loop goes on as the reference's",
    )


def _refused(schedule: Schedule, why: str) -> Finding:
    return Finding(
        code="rollout-refused",
        what=f"the reference does not take the calls of `{schedule.name}`: {why}",
    )


def _extended_mask(driven: Driven, case: Case, batch: int, begin: int, more: int) -> Array:
    """The mask of a case as far as it has one of rows by places, and ones for what follows."""
    mask = np.ones((batch, begin + more), np.int64)
    for name, drive in driven.drives.items():
        own = case.inputs[name]
        if drive is Drive.MASK and own.shape == (batch, begin):
            mask[:, :begin] = own != 0
    return mask
