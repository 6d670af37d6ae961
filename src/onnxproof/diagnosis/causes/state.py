"""The module keeps state between calls, and the file has that of another moment.

What it is: a forward pass changes something in the module (a counter, a running mean, a cache, the last hidden state), and the
next one answers otherwise. A graph keeps nothing: whatever the state was during the export is written into the file.

Why it happens: the module was called before it was exported, to warm it up or to try it, or has been called since; a cache was
filled by the example.

How to see it: the module after some more calls, or with that attribute as it was before them, gives what the candidate gives.

How to fix it: pass the state in as an input and hand it back as an output; or reset it before the export, and before every
call that the file is to be compared with.

Example: positions that are counted by `self.steps += 1`: the file counts from where the counter stood when it was exported.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
import torch

from onnxproof.diagnosis.counterfactuals.module_run import said, session_of
from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench
from onnxproof.reference.restore import equal
from onnxproof.reference.torch_session import TorchSession, from_numpy

TITLE = "the module keeps state, and the file has that of another moment"
PRICE = 4
_OWN = frozenset({"_parameters", "_buffers", "_modules", "training"})
_CALLS, _COUNTS, _OTHERS, _DEPTH = 6, 8, 2, 4
"""Further calls that are tried, numbers that a counter is set to, other cases that must agree, and how deep attributes are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """The module as it is at another moment."""

    what: str
    module: Any
    changed: tuple[str, ...]
    """What is otherwise in it, with both values where they are short."""


def test(bench: Workbench) -> Tried | str:
    """The module after more calls, and with what they change as it may have been before."""
    session = session_of(bench)
    if session is None or not bench.scene.reference.findings():
        return "a forward pass changes nothing in the module"
    for moment in _moments(session, bench):
        if bench.late:
            break
        after = _distance(session, moment, bench, bench.scene.case.inputs, bench.found)
        if bench.cured(after) and _holds(session, moment, bench):
            names = "; ".join(moment.changed[:4])
            return Tried(
                proven=True,
                by_reference=True,
                after=after,
                evidence=f"the module {moment.what} gives what the candidate gives; otherwise then: {names}",
            )
    return f"at no other moment does the module give what the candidate gives; a forward pass changes {', '.join(bench.scene.reference.findings())}"


def _distance(
    session: TorchSession,
    moment: _Moment,
    bench: Workbench,
    inputs: Mapping[str, Array],
    found: list[Array | None] | None,
) -> float:
    try:
        return bench.scene.error(found, said(session, copy.deepcopy(moment.module), inputs))
    except (
        Exception
    ):  # the user's own code with a state that it may never have: then it is not what happened
        return float("inf")


def _holds(session: TorchSession, moment: _Moment, bench: Workbench) -> bool:
    """True unless the module at that moment says something else than the candidate on another case that differs."""
    return all(
        _distance(session, moment, bench, case.inputs, bench.answers(inputs=case.inputs))
        <= bench.limit
        for case in bench.others[:_OTHERS]
    )


def _moments(session: TorchSession, bench: Workbench) -> Iterator[_Moment]:
    """After more calls, on the example or on the witness; before any call, and after some from there."""
    start = _copied(session.module)
    if start is None:
        return
    example, touched = bench.scene.reference.example(), set[tuple[str, str]]()
    for words, inputs in (("the example", example), ("the witness", bench.scene.case.inputs)):
        for call, module in _calls(session, start, inputs):
            touched |= {place for place, *_ in _differing(start, module)}
            yield _Moment(
                what=f"after {call} more call{'s' * (call != 1)} on {words}",
                module=module,
                changed=_told(start, module),
            )
    filed = copy.deepcopy(start)
    if _take(filed, touched, bench):
        yield _Moment(
            what="with its state as the file has it", module=filed, changed=_told(start, filed)
        )
    for count in range(_COUNTS):
        module = copy.deepcopy(start)
        for place in touched:
            _reset(module, place, count)
        yield _Moment(
            what=f"with its state as {_after(count)}", module=module, changed=_told(start, module)
        )
        for call, later in _calls(session, module, example) if count == 0 else ():
            yield _Moment(
                what=f"with its state as {_after(call)} on the example",
                module=later,
                changed=_told(start, later),
            )


def _take(module: torch.nn.Module, touched: set[tuple[str, str]], bench: Workbench) -> bool:
    """Put what the file has under the names of the changed buffers into the module."""
    weights = {tensor.name: tensor for tensor in bench.model.graph.initializer}
    known = {
        place: onnx.numpy_helper.to_array(weights[name])
        for place in touched
        if (name := ".".join(filter(None, place))) in weights
    }
    taken = [
        (value, known[place])
        for place in known
        if isinstance(value := getattr(module.get_submodule(place[0]), place[1]), torch.Tensor)
        and value.shape == known[place].shape
    ]
    with torch.no_grad():
        for value, found in taken:
            value.copy_(from_numpy(found))
    return bool(taken)


def _after(calls: int) -> str:
    return f"after {calls} call{'s' * (calls != 1)}" if calls else "before any call"


def _calls(
    session: TorchSession, start: torch.nn.Module, inputs: Mapping[str, Array]
) -> Iterator[tuple[int, torch.nn.Module]]:
    """A copy of the module after one call, after two, and so on."""
    module = copy.deepcopy(start)
    for call in range(1, _CALLS + 1):
        try:
            said(session, module, inputs)
        except Exception:  # the user's own code: a second call may be refused
            return
        yield call, module


def _copied(module: Any) -> Any:
    try:
        return (
            copy.deepcopy(module).eval()
            if isinstance(module, torch.nn.Module)
            and not isinstance(module, torch.jit.ScriptModule)
            else None
        )
    except Exception:  # some modules hold what can't be copied
        return None


def _state(module: torch.nn.Module) -> dict[tuple[str, str], Any]:
    """Buffers, parameters and plain attributes by module and name."""
    return {
        (path, name): value
        for path, part in module.named_modules()
        for name, value in [
            *part._buffers.items(),
            *part._parameters.items(),
            *((n, v) for n, v in part.__dict__.items() if n not in _OWN),
        ]
    }


def _differing(
    one: torch.nn.Module, other: torch.nn.Module
) -> Iterator[tuple[tuple[str, str], Any, Any]]:
    before, after = _state(one), _state(other)
    for place in {**before, **after}:
        old, new = before.get(place), after.get(place)
        if not _equal(old, new):
            yield place, old, new


def _equal(one: Any, other: Any, depth: int = _DEPTH) -> bool:
    """Whether two values are the same as far as they are data; what lies deeper, or is no data, was copied and counts as equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and equal(one, other)
    if isinstance(one, bool | int | float | str | set | None):
        return bool(one == other)
    if depth == 0 or callable(one):
        return True
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(
            _equal(a, b, depth - 1) for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            _equal(one[key], other[key], depth - 1) for key in one
        )
    return _equal(vars(one), vars(other), depth - 1) if hasattr(one, "__dict__") else True


def _told(start: torch.nn.Module, module: torch.nn.Module) -> tuple[str, ...]:
    return tuple(
        f"`{'.'.join(filter(None, place))}` ({_short(new)} for {_short(old)})"
        for place, old, new in _differing(start, module)
    )


def _short(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.item():.4g}" if value.numel() == 1 else f"a tensor {list(value.shape)}"
    return (
        repr(value)
        if isinstance(value, int | float | bool | type(None))
        else f"{len(value)} items"
        if hasattr(value, "__len__")
        else type(value).__name__
    )


def _reset(module: torch.nn.Module, place: tuple[str, str], count: int) -> None:
    """An attribute as it may have been after so many calls: numbers count, containers are empty, tensors are zero."""
    owner = module.get_submodule(place[0])
    value = getattr(owner, place[1], None)
    if isinstance(value, torch.Tensor) and place[1] in owner.__dict__ and count == 0:
        setattr(owner, place[1], None)  # a cache that nobody has filled yet
    elif isinstance(value, torch.Tensor):
        with torch.no_grad():
            value.fill_(count if value.numel() == 1 else 0)
    elif isinstance(value, bool) or value is None:
        setattr(owner, place[1], False if isinstance(value, bool) else None)
    elif isinstance(value, int | float):
        setattr(owner, place[1], type(value)(count))
    elif isinstance(value, list | dict | set):
        value.clear()
