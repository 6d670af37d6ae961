"""Put the fault into the reference: run the module with one of its own operations changed, and see what it then says.

Where the module with the fault in it gives the candidate's answers, on an input on which the two differ, the fault is
what the candidate has. A try costs one forward pass.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import _disable_current_modes

from onnxproof.reference.dispatch import Mode, named_arguments
from onnxproof.reference.trace import run_under
from onnxproof.reference.traced_value import TracedValue

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.workbench import Workbench

Change = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""What a call gives instead: from the operator, its arguments and its keyword arguments."""
_MOST_TRIALS, _SHARE = 600, 1 / 3
"""For one kind of cause: trials, and of the time that is left. A trial costs a forward pass: six hundred of 3 ms are two seconds. The share keeps
one kind on a slow model from taking all that the others need."""
_MOST_CALLS = 10
_FEW = 64
_OTHERS, _EXPLAINED = 2, 20
"""Other cases that are asked, and how much nearer the changed module must be on them."""
VIEWS = frozenset(
    {
        "view",
        "_unsafe_view",
        "reshape",
        "expand",
        "unsqueeze",
        "squeeze",
        "permute",
        "transpose",
        "t",
        "alias",
        "detach",
        "clone",
        "slice",
        "select",
        "split",
        "split_with_sizes",
        "unbind",
        "_to_copy",
        "lift_fresh",
        "contiguous",
        "_reshape_alias",
        "real",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way in which a call may have gone wrong."""

    what: str
    """As a clause after the call's name: `with eps=1e-05`."""
    change: Change
    code: str = ""
    more: tuple[tuple[int, Change], ...] = ()
    """Further calls that go wrong with it."""


class _Changed(Mode):
    """Counts calls as the recorder does, and changes those that are asked for."""

    def __init__(self, changes: Mapping[int, Change]) -> None:
        super().__init__()
        self._changes, self.calls = changes, -1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call, or what stands for it."""
        self.calls += 1
        change = self._changes.get(self.calls)
        if change is None:
            return func(*args, **(kwargs or {}))
        with _disable_current_modes():  # a narrower type is to stay narrow here
            return change(func, args, kwargs or {})


def distance(bench: "Workbench", changes: Mapping[int, Change]) -> float:
    """How far the changed module is from the candidate's answers; infinite where it does not run."""
    scene = bench.scene
    if bench.located.module_session is None or bench.found is None:
        return float("inf")
    try:
        outputs = run_under(bench.located.module_session, scene.case.inputs, _Changed(changes))
    except Exception:  # a changed operation may not fit what follows: then it is not what happened
        return float("inf")
    return scene.error(bench.found, outputs)


def holds(bench: "Workbench", changes: Mapping[int, Change]) -> bool:
    """True unless another case that differs tells against it: with a length one short of all, ignoring a mask and counting one too many are the same."""
    witness = _Changed({})
    run_under(bench.located.module_session, bench.scene.case.inputs, witness)
    for case in bench.others[:_OTHERS]:
        found, plain = bench.answers(inputs=case.inputs), _Changed({})
        try:
            before = run_under(bench.located.module_session, case.inputs, plain)
            after = run_under(bench.located.module_session, case.inputs, _Changed(changes))
        except (
            Exception
        ):  # other sizes may take another way through the module: then it says nothing
            continue
        if found is None or plain.calls != witness.calls:
            continue
        was, now = (bench.scene.error(found, outputs) for outputs in (before, after))
        if now > max(was / _EXPLAINED, bench.limit):
            return False
    return True


def suspects(bench: "Workbench", *, views: bool = False) -> list[TracedValue]:
    """The module's calls at which the file may go astray: the located nodes' own, then those whose inputs are in the file and whose result is not."""
    entries = bench.located.traced_values
    known = {
        e.place for e in entries if e.place in bench.located.matched or e.op.startswith("input ")
    }
    for e in entries:
        if e.op in VIEWS and e.inputs and all(i in known for i in e.inputs):
            known.add(e.place)
    own = [e for e in map(bench.counterpart, bench.nodes[:2]) if e is not None]
    feeding = [entries[i] for e in own for i in _feeding(entries, e)]
    lines = {e.source for e in own if e.source is not None} | {bench.where.source}
    beside = [
        e for e in entries if e.source is not None and e.source in lines and e.place not in known
    ]
    front = [e for e in entries if e.place not in known and all(i in known for i in e.inputs)]
    here = own[0].place if own else 0
    nearest = (
        sorted([*beside, *front], key=lambda e: abs(e.place - here)) if own else [*front, *beside]
    )
    found = [*own, *feeding, *nearest]
    if views:
        found = [*own, *(e for start in found for e in _behind(entries, start)), *beside]
    chosen: dict[int, TracedValue] = {}
    for e in found:
        whole = e if e.outer is None else entries[e.outer]
        if whole.call >= 0:
            chosen.setdefault(whole.call, whole)
    return list(chosen.values())[:_MOST_CALLS]


def _feeding(entries: list[TracedValue], start: TracedValue) -> Iterator[int]:
    """What a call reads, seen through views: a step that the file leaves out is one of these."""
    waiting = list(start.inputs)
    while waiting:
        place = waiting.pop(0)
        if entries[place].op in VIEWS:
            waiting += entries[place].inputs
        else:
            yield place


def _behind(entries: list[TracedValue], start: TracedValue) -> Iterator[TracedValue]:
    """The views through which a call reads what it reads."""
    waiting = [start.place]
    while waiting:
        entry = entries[waiting.pop()]
        if entry.op in VIEWS:
            yield entry
        if entry is start or entry.op in VIEWS:
            waiting += entry.inputs


def alike(bench: "Workbench", entry: TracedValue) -> list[TracedValue]:
    """Every call of the same operator from the same line: a loop or a stack of blocks has the fault in each."""
    return [
        e
        for e in bench.located.traced_values
        if e.outer is None and e.op == entry.op and e.source == entry.source and e.call >= 0
    ]


def search(
    bench: "Workbench", variants: Callable[[TracedValue], Iterable[Variant]], *, views: bool = False
) -> "tuple[TracedValue, Variant, float] | None":
    """The first variant of a suspected call with which the module says what the candidate says."""
    trials, deadline = 0, bench.deadline.within(bench.deadline.left * _SHARE)
    for entry in suspects(bench, views=views):
        for variant in variants(entry):
            for calls in _scopes(bench, entry):
                if trials >= _MOST_TRIALS or deadline.passed:
                    return None
                trials += 1
                changes = dict.fromkeys(calls, variant.change) | dict(variant.more)
                after = distance(bench, changes)
                if after <= bench.limit and after < bench.before / 5 and holds(bench, changes):
                    return entry, variant, after
    return None


def _scopes(bench: "Workbench", entry: TracedValue) -> Iterator[list[int]]:
    yield [entry.call]
    every = sorted({e.call for e in alike(bench, entry)})
    if len(every) > 1:
        yield every


class _Numbers(Mode):
    """Notes the plain numbers that each call was given, and the one it gave where it gave one."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, dict[str, Any], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run and note."""
        result = func(*args, **(kwargs or {}))
        bound = named_arguments(func, args, kwargs)
        given = {name: value for name, value in bound.items() if _plain(value)}
        op = func._schema.name.split("::")[-1]
        number = result if isinstance(result, bool | int | float) else None
        if (
            op == "lift_fresh" and result.numel() <= _FEW
        ):  # a tensor written down in Python: `torch.tensor([width, height])`
            number = result.tolist()
        self.calls.append((op, given, number))
        return result


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_plain(v) for v in value)
    return isinstance(value, bool | int | float)


def ways_differ(bench: "Workbench") -> bool:
    """True when the witness and the example make the module call other operations."""
    here, there = _Numbers(), _Numbers()
    try:
        run_under(bench.located.module_session, bench.scene.case.inputs, here)
        run_under(bench.located.module_session, bench.scene.reference.example(), there)
    except Exception:  # the module may refuse its own example in float64: then nothing can be said
        return False
    return [op for op, _, _ in here.calls] != [op for op, _, _ in there.calls]


def numbers_of_example(bench: "Workbench") -> Iterator[tuple[int, str, Any, Change]]:
    """The calls to which the example gave other numbers than the witness: which, the operator, the example's number, and the call with it."""
    scene = bench.scene
    here, there = _Numbers(), _Numbers()
    try:
        run_under(bench.located.module_session, scene.case.inputs, here)
        run_under(bench.located.module_session, scene.reference.example(), there)
    except Exception:  # the module may refuse its own example in float64: then nothing can be said
        return
    for call, ((op, given, got), (other_op, other, number)) in enumerate(
        zip(here.calls, there.calls, strict=False)
    ):
        if op != other_op:
            return
        if got is not None and got != number:
            yield call, op, number, _giving(number)
        elif given != other:
            changed = {name: value for name, value in other.items() if given.get(name) != value}
            yield call, op, next(iter(changed.values()), None), with_arguments(**changed)


def with_arguments(**changed: Any) -> Change:
    """The same operator with other arguments, by the names of its schema."""

    def change(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names = [a.name for a in func._schema.arguments]
        bound = named_arguments(func, args, kwargs) | changed
        if (
            "running_mean" in bound
            and bound["running_mean"] is None
            and not bound.get("training", True)
        ):
            raise ValueError(
                "a norm without statistics can't use them"
            )  # torch does not ask, and the process would end
        positional = [
            bound[name]
            for name in names
            if name in bound
            and not next(a for a in func._schema.arguments if a.name == name).kwarg_only
        ]
        keywords = {
            a.name: bound[a.name]
            for a in func._schema.arguments
            if a.kwarg_only and a.name in bound
        }
        return func(*positional, **keywords)

    return change


def instead(function: Callable[..., Any]) -> Change:
    """Another function of the same positional arguments."""
    return lambda func, args, kwargs: function(
        *(
            v
            for n, v in named_arguments(func, args, kwargs).items()
            if n not in ("rounding_mode", "alpha")
        )
    )


def _giving(number: Any) -> Change:
    """The example's number in place of the witness's, as a tensor where it was one."""
    return lambda func, args, kwargs: (
        args[0].new_tensor(number) if func._schema.name.endswith("lift_fresh") else number
    )


def skipped(place: int = 0) -> Change:
    """The call left out: one of its arguments goes through as it is (as a tensor of its own, which a view must be)."""
    return lambda func, args, kwargs: args[place].detach()


def told(entry: TracedValue) -> str:
    """A call in words, with its line."""
    return f"`{entry.op}`" + (
        f" ({entry.source.file}:{entry.source.line}: `{entry.source.text}`)" if entry.source else ""
    )
