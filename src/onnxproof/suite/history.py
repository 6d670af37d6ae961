"""What moved in the recorded runs of a suite, since when, and with what.

A verdict that changed, or a number that stepped (`change_points`), is a move where something that the model depends on changed with that
run, or where it stays. What comes back by itself while nothing changed is jitter: such a model is called unsteady.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from onnxproof.errors import UsageError
from onnxproof.suite.change_points import Step, find_steps
from onnxproof.suite.records import Result, Run
from onnxproof.suite.series import METRICS, Recorded, Series, series

VERDICT = "verdict"
_WORSE = ("faithful", "drift", "diverged", "vacuous", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Something that was recorded to change with a run."""

    kind: str
    """version, commit, hardware, file (of the model's own), or key."""
    name: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A model that moved with a run."""

    model: str
    run: int
    metric: str
    before: str | float
    after: str | float
    worse: bool
    backend: str = ""
    until: int | None = None
    """The first run in which it is back; None where it stays."""
    p_value: float | None = None
    """The chance that jitter alone steps as far, before it is set against the number of tests; None for a verdict."""
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One model in two runs; None where a run does not have it."""

    model: str
    first: Result | None
    second: Result | None
    reasons: tuple[Reason, ...] = ()

    @property
    def moved(self) -> bool:
        """True when the verdict is another one, or one of the runs has none."""
        if self.first is None or self.second is None:
            return True
        return self.first.verdict != self.second.verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The moves of a suite, the oldest first."""

    suite: str
    runs: tuple[Run, ...]
    models: tuple[str, ...]
    moves: tuple[Move, ...]
    unsteady: tuple[str, ...]
    """Models whose verdict comes and goes while nothing changes."""
    compared: tuple[Difference, ...] = ()
    """Every model in two runs, where that was asked for."""


def examine(recorded: Recorded) -> History:
    """All moves in the history of one suite."""
    reasons = _Reasons(recorded)
    verdicts, unsteady = _verdict_moves(recorded, reasons)
    moves = [*verdicts, *_number_moves(recorded, reasons)]
    moves.sort(key=lambda move: (move.run, move.model, move.metric != VERDICT, move.backend))
    return History(
        suite=recorded.suite,
        runs=recorded.runs,
        models=tuple(recorded.models),
        moves=tuple(moves),
        unsteady=tuple(sorted(unsteady)),
    )


class _Reasons:
    """What changed for a model between two of its runs."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        self._runs = {run.id: run for run in recorded.runs}
        self.informative = any(
            self.between(name, earlier.id, later.id)
            for name in recorded.models
            for (earlier, _), (later, _) in pairwise(recorded.of_model(name))
        )
        """False where nothing was ever recorded to change: then a lack of reasons says nothing."""

    def between(self, model: str, earlier: int, later: int) -> tuple[Reason, ...]:
        """What the model depends on and what changed from one run to another; a commit alone changes nothing."""
        old, new = (self._recorded.results[run][model] for run in (earlier, later))
        before, after = self._runs[earlier], self._runs[later]
        found = [*run_reasons(before, after), *_changed("file", old.depends, new.depends)]
        if not found and old.key != new.key:
            found = [Reason(kind="key", name=model, before=old.key, after=new.key)]
        if found and before.commit_id != after.commit_id:
            found.append(
                Reason(
                    kind="commit",
                    name="commit",
                    before=before.commit_id or "",
                    after=after.commit_id or "",
                )
            )
        return tuple(found)


def run_reasons(before: Run, after: Run) -> list[Reason]:
    """The versions and the hardware that changed from one run to another."""
    return [
        *_changed("version", before.versions, after.versions),
        *_changed("hardware", before.hardware, after.hardware),
    ]


def _changed(kind: str, before: Mapping[str, object], after: Mapping[str, object]) -> list[Reason]:
    names = sorted({*before, *after})
    return [
        Reason(kind=kind, name=name, before=_text(before, name), after=_text(after, name))
        for name in names
        if before.get(name) != after.get(name)
    ]


def _text(values: Mapping[str, object], name: str) -> str:
    return str(values[name]) if name in values else ""


def _verdict_moves(recorded: Recorded, reasons: _Reasons) -> tuple[list[Move], set[str]]:
    moves: list[Move] = []
    unsteady: set[str] = set()
    for name in recorded.models:
        results = [pair for pair in recorded.of_model(name) if pair[1].reused_from is None]
        for place in range(1, len(results)):
            (earlier, old), (later, new) = results[place - 1 : place + 1]
            if old.verdict == new.verdict:
                continue
            why = reasons.between(name, earlier.id, later.id)
            back = _first_back(results[place:], old.verdict)
            if (
                not why
                and reasons.informative
                and (back is not None or _was_there(results[:place], new))
            ):
                unsteady.add(name)
                continue
            moves.append(
                Move(
                    model=name,
                    run=later.id,
                    metric=VERDICT,
                    before=old.verdict,
                    after=new.verdict,
                    worse=_WORSE.index(new.verdict) > _WORSE.index(old.verdict),
                    until=back,
                    reasons=why,
                )
            )
    return moves, unsteady


def _first_back(results: Sequence[tuple[Run, Result]], verdict: str) -> int | None:
    return next((run.id for run, result in results if result.verdict == verdict), None)


def _was_there(results: Sequence[tuple[Run, Result]], new: Result) -> bool:
    return any(result.verdict == new.verdict for _, result in results)


def _number_moves(recorded: Recorded, reasons: _Reasons) -> list[Move]:
    moves: list[Move] = []
    everything = series(recorded)
    for metric in METRICS:
        chosen = [each for each in everything if each.metric == metric]

        def known(number: int, place: int, chosen: list[Series] = chosen) -> bool:
            return bool(_reasons_at(chosen[number], place, reasons))

        values = [[point.scaled for point in each.points] for each in chosen]
        for each, steps in zip(chosen, find_steps(values, known), strict=True):
            moves += [
                _number_move(each, step, why)
                for step in steps
                if (why := _reasons_at(each, step.start, reasons)) or _stays(step, reasons)
            ]
    return moves


def _reasons_at(each: Series, place: int, reasons: _Reasons) -> tuple[Reason, ...]:
    return reasons.between(each.model, each.points[place - 1].run, each.points[place].run)


def _stays(step: Step, reasons: _Reasons) -> bool:
    """Without a reason only what stays is a move; where reasons were never recorded, nothing can be asked of them."""
    return not step.returns or not reasons.informative


def _number_move(each: Series, step: Step, why: tuple[Reason, ...]) -> Move:
    rises = step.after > step.before
    until = None
    if step.returns:
        until = each.points[step.end].run
    return Move(
        model=each.model,
        run=each.points[step.start].run,
        metric=each.metric,
        backend=each.backend,
        before=_level(each, step.before),
        after=_level(each, step.after),
        worse=rises == (each.metric != "quality"),
        until=until,
        p_value=step.p_value,
        reasons=why,
    )


def _level(each: Series, scaled: float) -> float:
    """A mean on the scale of the test, as a value."""
    return scaled if each.metric == "quality" else 10.0**scaled


def compare(recorded: Recorded, first: int, second: int) -> tuple[Difference, ...]:
    """Every model in both runs, those with another verdict first, then by how far the noise ratio moved."""
    for number in (first, second):
        if number not in recorded.results:
            known = ", ".join(str(run.id) for run in recorded.runs[-10:])
            raise UsageError(
                "no-such-run",
                f"`{recorded.suite}` has no run {number} with results",
                notes=[f"the last ones are {known}"],
            )
    reasons = _Reasons(recorded)
    old, new = recorded.results[first], recorded.results[second]
    differences = []
    for name in sorted({*old, *new}):
        why: tuple[Reason, ...] = ()
        if name in old and name in new:
            why = reasons.between(name, first, second)
        differences.append(
            Difference(model=name, first=old.get(name), second=new.get(name), reasons=why)
        )
    order = sorted(differences, key=lambda each: (not each.moved, -_factor(each), each.model))
    return tuple(order)


def _factor(each: Difference) -> float:
    """How many times the noise ratio is what it was, up or down."""
    if each.first is None or each.second is None:
        return 1.0
    ratios = [result.noise_ratio for result in (each.first, each.second)]
    if not all(ratios):
        return 1.0
    low, high = sorted(max(ratio or 0.0, 1e-9) for ratio in ratios)
    return high / low
