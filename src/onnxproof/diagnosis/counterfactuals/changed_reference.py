"""Put the fault into the reference: run the module with one of its own operations changed, and see what it then says.

Where the module with the fault in it gives the candidate's answers, on an input on which the two differ, the fault is
what the candidate has. A try costs one forward pass.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals.suspected_calls import (
    calls_from_same_line,
    suspected_calls,
)
from onnxproof.diagnosis.judge import Counterfactual, Judgement, Standing
from onnxproof.reference.dispatch import Mode, named_arguments
from onnxproof.reference.operations import op_name, user_line
from onnxproof.reference.trace import run_under
from onnxproof.reference.traced_value import TracedValue
from onnxproof.results import Source

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
    from onnxproof.diagnosis.trial_cases import TrialCase

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Change = Callable[[Any, Arguments, Keywords], Any]
"""What a call gives instead: from the operator, its arguments and its keyword arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way in which a call may have gone wrong."""

    what: str
    """As a clause after the call's name: `with eps=1e-05`."""
    change: Change
    code: str = ""
    name: Callable[[], str] | None = None
    """Gives the code once the variant was found to match, where that must be measured."""
    more: tuple[tuple[int, Change], ...] = ()
    """Further calls that go wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A variant of a call with which the module gives the candidate's outputs."""

    entry: TracedValue
    variant: Variant
    judgement: Judgement


class _ChangedCalls(Mode):
    """Counts calls as the recorder does, and changes those that are asked for."""

    def __init__(self, changes: Mapping[int, Change]) -> None:
        super().__init__()
        self._changes = changes
        self.calls = -1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call, or what stands for it."""
        self.calls += 1
        change = self._changes.get(self.calls)
        if change is None:
            return func(*args, **(kwargs or {}))
        with _disable_current_modes():  # a narrower type is to stay narrow here
            return change(func, args, kwargs or {})


@dataclass(frozen=True, slots=True)
class _Call:
    """A call as it can be found again in another pass."""

    op: str
    source: Source | None


class _CallRecorder(Mode):
    """Records the operator and the line of every call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record and run."""
        self.calls.append(_Call(op_name(func), user_line()))
        return func(*args, **(kwargs or {}))


def changed_calls(
    workbench: "Workbench", changes: Mapping[int, Change], *, may_refuse: bool = False
) -> Counterfactual:
    """The module with some calls changed; on another case the same calls by their operator and line.

    With `may_refuse`, a module that refuses a case with the change agrees with a file that refuses it.
    """

    def error(case: "TrialCase") -> float | None:
        session = workbench.located.module_session
        changes_there = _changes_on(workbench, changes, case)
        if session is None or changes_there is None:
            return None
        try:
            outputs = run_under(session, case.inputs, _ChangedCalls(changes_there))
        except Exception:  # a changed operation may not fit what follows
            return 0.0 if may_refuse and case.outputs is None else float("inf")
        return case.scene.error(case.outputs, outputs)

    return Counterfactual(error=error, in_reference=True)


def _changes_on(
    workbench: "Workbench", changes: Mapping[int, Change], case: "TrialCase"
) -> Mapping[int, Change] | None:
    """The changes by the numbers that their calls have on another case; None where the module takes another path there."""
    if case.scene is workbench.scene:
        return changes
    here = recorded_calls(workbench, workbench.witness)
    there = recorded_calls(workbench, case)
    if here is None or there is None:
        return None
    if [call.op for call in here] == [call.op for call in there]:
        return changes
    moved: dict[int, Change] = {}
    for number, change in changes.items():
        places = _same_calls(here, there, number, set(changes))
        if not places:
            return None
        moved.update(dict.fromkeys(places, change))
    return moved


def _same_calls(here: list[_Call], there: list[_Call], number: int, changed: set[int]) -> list[int]:
    """Where a changed call is among the calls of another case: all of its line if all are changed, else the one of the same rank; none where that can't be said."""
    alike_here = [place for place, call in enumerate(here) if call == here[number]]
    alike_there = [place for place, call in enumerate(there) if call == here[number]]
    if changed.issuperset(alike_here):
        return alike_there
    if len(alike_here) == len(alike_there):
        return [alike_there[alike_here.index(number)]]
    return []


def recorded_calls(workbench: "Workbench", case: "TrialCase") -> list[_Call] | None:
    """The calls of the module on a case, recorded once; None where it does not run."""
    known: dict[str, list[_Call] | None] = workbench.recorded_calls
    name = case.scene.case.name
    if name not in known:
        recorder = _CallRecorder()
        try:
            run_under(workbench.located.module_session, case.inputs, recorder)
            known[name] = recorder.calls
        except Exception:  # the module may refuse in float64 what it takes in its own type
            known[name] = None
    return known[name]


def operands_vary(workbench: "Workbench", entry: TracedValue) -> bool:
    """Whether a tensor behind the first operand of a call holds other numbers on another case, in the same shape: no parameter does."""
    seen: dict[tuple[int, tuple[int, ...]], set[bytes]] = {}

    def look(func: Any, args: Arguments, kwargs: Keywords) -> Any:
        for place, value in enumerate(args[1:]):
            if isinstance(value, torch.Tensor):
                numbers = value.detach().contiguous().cpu().numpy().tobytes()
                key = (place, tuple(value.shape))
                seen.setdefault(key, set()).add(hashlib.sha256(numbers).digest())
        return func(*args, **kwargs)

    looked = changed_calls(workbench, {entry.call: look})
    for case in (workbench.witness, *workbench.trial_cases.others_that_fail()):
        looked.error(case)
    return any(len(digests) > 1 for digests in seen.values())


def try_variants(
    workbench: "Workbench",
    variants: Callable[[TracedValue], Iterable[Variant]],
    *,
    views: bool = False,
    remedy: "Callable[[], Tried | str] | None" = None,
) -> "Tried | str":
    """Look for a change of the file that mends it, and put each variant of a suspected call into the module.

    A file that is right on all cases once it is mended needs no further search: a run of it costs less than one of the module, call by call.
    """
    tried: Tried | str = "no such change of the module gives what the candidate gives"
    if remedy is not None:
        tried = remedy()
    if not isinstance(tried, str) and tried.proven:
        return tried
    match = search(workbench, variants, views=views)
    if match is None:
        return tried
    call = describe_call(match.entry)
    evidence = f"the module with {call} {match.variant.what} gives what the candidate gives {match.judgement}"
    if isinstance(tried, str):
        return _tried(evidence, match)
    return replace(_tried(evidence, match), fix=tried.fix, model=tried.model)


def _tried(evidence: str, match: Match) -> "Tried":
    from onnxproof.diagnosis.counterfactuals.workbench import Tried

    variant = match.variant
    code = variant.code if variant.name is None else variant.name()
    return Tried(evidence=evidence, judgement=match.judgement, code=code)


def search(
    workbench: "Workbench",
    variants: Callable[[TracedValue], Iterable[Variant]],
    *,
    views: bool = False,
) -> Match | None:
    """The first variant of a suspected call that is proven; failing that, the first that is likely."""
    if workbench.located.module_session is None:
        return None
    if workbench.witness.outputs is None:  # every change that breaks the module would match
        return None
    deadline = workbench.deadline.within(workbench.deadline.left * limits.DEADLINE_SHARE)
    likely: Match | None = None
    trials = _trials(workbench, variants, views)
    for entry, variant, calls in itertools.islice(trials, limits.MOST_TRIALS):
        if deadline.passed:
            break
        changes = dict.fromkeys(calls, variant.change) | dict(variant.more)
        judgement = workbench.judge(changed_calls(workbench, changes))
        if judgement.standing is Standing.REFUTED:
            continue
        match = Match(entry=entry, variant=variant, judgement=judgement)
        if judgement.proven or not workbench.trial_cases.can_prove:
            return match
        likely = likely or match
    return likely


def _trials(
    workbench: "Workbench", variants: Callable[[TracedValue], Iterable[Variant]], views: bool
) -> Iterator[tuple[TracedValue, Variant, list[int]]]:
    """Each variant of each suspected call: in this call alone, then in all calls from the same line."""
    for entry in suspected_calls(workbench, views=views):
        for variant in variants(entry):
            yield entry, variant, [entry.call]
            calls = calls_from_same_line(workbench, entry)
            if len(calls) > 1:
                yield entry, variant, calls


def with_arguments(**changed: Any) -> Change:
    """The same operator with other arguments, by the names of its schema."""

    def change(func: Any, args: Arguments, kwargs: Keywords) -> Any:
        bound = named_arguments(func, args, kwargs) | changed
        _refuse_missing_statistics(bound)
        arguments = [a for a in func._schema.arguments if a.name in bound]
        positional = [bound[a.name] for a in arguments if not a.kwarg_only]
        keywords = {a.name: bound[a.name] for a in arguments if a.kwarg_only}
        return func(*positional, **keywords)

    return change


def _refuse_missing_statistics(bound: Mapping[str, Any]) -> None:
    """Raise for a norm in inference mode that has no statistics: torch does not ask, and the process would end."""
    if "running_mean" not in bound or bound.get("training", True):
        return
    if bound["running_mean"] is None:
        raise ValueError("a norm without statistics can't use them")


def call_instead(function: Callable[..., Any]) -> Change:
    """Another function of the same positional arguments."""

    def change(func: Any, args: Arguments, kwargs: Keywords) -> Any:
        bound = named_arguments(func, args, kwargs)
        bound.pop("rounding_mode", None)
        bound.pop("alpha", None)
        return function(*bound.values())

    return change


def skip_call(place: int = 0) -> Change:
    """The call left out: one of its arguments goes through as it is (as a tensor of its own, which a view must be).

    Of a call with several results, such as a norm, the argument is the first, and the others stay.
    """

    def change(func: Any, args: Arguments, kwargs: Keywords) -> Any:
        passed = args[place].detach()
        if len(func._schema.returns) < 2:
            return passed
        _, *others = func(*args, **kwargs)
        return (passed, *others)

    return change


def pass_operand(entry: TracedValue, operand: int = 0) -> Change:
    """A call left out: one of the computed values that it reads goes through, by its number among those.

    A parameter may stand before it (`self.scale * x`): a call with one computed value passes the first operand that has the result's shape.
    """
    if len(entry.inputs) != 1:
        return skip_call(operand)
    shape = entry.sketch.shape

    def change(func: Any, args: Arguments, kwargs: Keywords) -> Any:
        places = [
            place for place, value in enumerate(args) if getattr(value, "shape", None) == shape
        ]
        return skip_call(next(iter(places), 0))(func, args, kwargs)

    return change


def describe_call(entry: TracedValue) -> str:
    """A call in words, with its line."""
    if not entry.source:
        return f"`{entry.op}`"
    return f"`{entry.op}` ({describe_source(entry)})"


def describe_source(entry: TracedValue) -> str:
    """File, line and text of a call."""
    source = entry.source
    if source is None:
        return ""
    return f"{source.file}:{source.line}: `{source.text}`"
