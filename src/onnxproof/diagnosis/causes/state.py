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
from functools import partial
from typing import Any

import torch

from onnxproof.diagnosis.counterfactuals.module_run import module_session, run_module
from onnxproof.diagnosis.counterfactuals.module_state import (
    Place,
    describe_differences,
    dotted_name,
    reset_state,
    state_differences,
)
from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench
from onnxproof.onnxmodel import mapped_weights
from onnxproof.reference.torch_session import TorchSession, from_numpy

TITLE = "the module keeps state, and the file has that of another moment"
PRICE = 4
_MOST_CALLS = 6
"""Further calls that are tried. Not measured."""
_MOST_COUNTS = 8
"""Numbers that a counter is set to. Not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """The module as it is at another moment."""

    what: str
    module: Any
    changed: tuple[str, ...]
    """What is otherwise in it, with both values where they are short."""


def test(workbench: Workbench) -> Tried | str:
    """The module after more calls, and with what they change as it may have been before."""
    session = module_session(workbench)
    changing = workbench.scene.reference.findings()
    if session is None or not changing:
        return "a forward pass changes nothing in the module"
    for moment in _moments(session, workbench):
        if workbench.late:
            break
        names = "; ".join(moment.changed[:4])
        tried = workbench.try_counterfactual(
            workbench.changed_answers(partial(_answers, session, moment)),
            f"the module {moment.what} (otherwise then: {names}) gives what the candidate gives",
        )
        if tried is not None:
            return tried
    return f"at no other moment does the module give what the candidate gives; a forward pass changes {', '.join(changing)}"


def _answers(
    session: TorchSession, moment: _Moment, inputs: Mapping[str, Array]
) -> list[Array] | None:
    """What the module says at that moment; None where it does not run."""
    try:
        return run_module(session, copy.deepcopy(moment.module), inputs)
    # the user's own code with a state that it may never have: then it is not what happened
    except Exception:
        return None


def _moments(session: TorchSession, workbench: Workbench) -> Iterator[_Moment]:
    """The module at other moments.

    1. After more calls, on the example or on the witness.
    2. With what those calls change as the file has it.
    3. With it as before any call, and as after so many.
    4. After calls on the example, counted from there.
    """
    start = _copy(session.module)
    if start is None:
        return
    example = workbench.scene.reference.example()
    changing: set[Place] = set()
    for words, inputs in (("the example", example), ("the witness", workbench.scene.case.inputs)):
        for call, module in _after_calls(session, start, inputs):  # 1
            changing |= {place for place, *_ in state_differences(start, module)}
            calls = "1 more call" if call == 1 else f"{call} more calls"
            yield _moment(start, module, f"after {calls} on {words}")
    as_in_file = copy.deepcopy(start)
    if _copy_from_file(as_in_file, changing, workbench):  # 2
        yield _moment(start, as_in_file, "with its state as the file has it")
    for count in range(_MOST_COUNTS):  # 3
        module = copy.deepcopy(start)
        for place in changing:
            reset_state(module, place, count)
        yield _moment(start, module, f"with its state as {_describe_calls(count)}")
        if count == 0:
            for call, later in _after_calls(session, module, example):  # 4
                what = f"with its state as {_describe_calls(call)} on the example"
                yield _moment(start, later, what)


def _moment(start: torch.nn.Module, module: torch.nn.Module, what: str) -> _Moment:
    return _Moment(what=what, module=module, changed=describe_differences(start, module))


def _copy_from_file(module: torch.nn.Module, places: set[Place], workbench: Workbench) -> bool:
    """Put what the file has under the names of the changed buffers into the module; True when there is something."""
    weights = {tensor.name: tensor for tensor in workbench.model.graph.initializer}
    copied = False
    for place in places:
        tensor = weights.get(dotted_name(place))
        value = getattr(module.get_submodule(place[0]), place[1], None)
        if tensor is None or not isinstance(value, torch.Tensor):
            continue
        array = mapped_weights.to_array(tensor)
        if value.shape == array.shape:
            copied = True
            with torch.no_grad():
                value.copy_(from_numpy(array))
    return copied


def _describe_calls(calls: int) -> str:
    if calls == 0:
        return "before any call"
    if calls == 1:
        return "after 1 call"
    return f"after {calls} calls"


def _after_calls(
    session: TorchSession, start: torch.nn.Module, inputs: Mapping[str, Array]
) -> Iterator[tuple[int, torch.nn.Module]]:
    """A copy of the module after one call, after two, and so on."""
    module = copy.deepcopy(start)
    for call in range(1, _MOST_CALLS + 1):
        try:
            run_module(session, module, inputs)
        except Exception:  # the user's own code: a second call may be refused
            return
        yield call, module


def _copy(module: Any) -> Any:
    """A copy in inference mode; None where there can be none."""
    if not isinstance(module, torch.nn.Module) or isinstance(module, torch.jit.ScriptModule):
        return None
    try:
        return copy.deepcopy(module).eval()
    except Exception:  # some modules hold what can't be copied
        return None
