"""Put the fault into the reference: run the module with one of its own operations changed, and see what it then says.

Where the module with the fault in it gives the candidate's answers, on an input on which the two differ, the fault is
what the candidate has. A try costs one forward pass.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import _disable_current_modes

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals.suspected_calls import (
    calls_from_same_line,
    suspected_calls,
)
from onnxproof.reference.dispatch import Mode, named_arguments
from onnxproof.reference.trace import run_under
from onnxproof.reference.traced_value import TracedValue

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.workbench import Workbench
    from onnxproof.results import Case

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
    more: tuple[tuple[int, Change], ...] = ()
    """Further calls that go wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A variant of a call with which the module gives the candidate's outputs."""

    entry: TracedValue
    variant: Variant
    after: float
    """The relative distance that is left."""


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


def distance(workbench: "Workbench", changes: Mapping[int, Change]) -> float:
    """How far the changed module is from the candidate's outputs; infinite where it does not run."""
    scene, session = workbench.scene, workbench.located.module_session
    if session is None or workbench.candidate_outputs is None:
        return float("inf")
    try:
        outputs = run_under(session, scene.case.inputs, _ChangedCalls(changes))
    except Exception:  # a changed operation may not fit what follows: then it is not what happened
        return float("inf")
    return workbench.distance_between(workbench.candidate_outputs, outputs)


def _holds_on_other_cases(workbench: "Workbench", changes: Mapping[int, Change]) -> bool:
    """True unless another case that differs tells against it: with a length one short of all, ignoring a mask and counting one too many are the same."""
    witness = _ChangedCalls({})
    run_under(workbench.located.module_session, workbench.scene.case.inputs, witness)
    return all(
        _holds_on(workbench, changes, case, witness.calls)
        for case in workbench.cases.others[: limits.OTHER_CASES]
    )


def _holds_on(
    workbench: "Workbench", changes: Mapping[int, Change], case: "Case", calls: int
) -> bool:
    """True unless the change explains too little of this case; a case that takes another path through the module says nothing."""
    outputs = workbench.run(inputs=case.inputs)
    unchanged = _ChangedCalls({})
    try:
        before = run_under(workbench.located.module_session, case.inputs, unchanged)
        after = run_under(workbench.located.module_session, case.inputs, _ChangedCalls(changes))
    except Exception:  # other sizes may take another path through the module
        return True
    if outputs is None or unchanged.calls != calls:
        return True
    error_before = workbench.distance_between(outputs, before)
    error_after = workbench.distance_between(outputs, after)
    allowed = max(error_before / limits.OTHER_CASES_IMPROVEMENT, workbench.limit)
    return not error_after > allowed


def search(
    workbench: "Workbench",
    variants: Callable[[TracedValue], Iterable[Variant]],
    *,
    views: bool = False,
) -> Match | None:
    """The first variant of a suspected call with which the module gives the candidate's outputs."""
    if workbench.located.module_session is None:
        return None
    deadline = workbench.deadline.within(workbench.deadline.left * limits.DEADLINE_SHARE)
    trials = _trials(workbench, variants, views)
    for entry, variant, calls in itertools.islice(trials, limits.MOST_TRIALS):
        if deadline.passed:
            return None
        changes = dict.fromkeys(calls, variant.change) | dict(variant.more)
        after = distance(workbench, changes)
        if workbench.cured(after) and _holds_on_other_cases(workbench, changes):
            return Match(entry=entry, variant=variant, after=after)
    return None


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
    """The call left out: one of its arguments goes through as it is (as a tensor of its own, which a view must be)."""
    return lambda func, args, kwargs: args[place].detach()


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
