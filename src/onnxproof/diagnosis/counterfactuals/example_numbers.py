"""The plain numbers that the module's calls were given for its example, beside those for the witness."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnxproof.diagnosis.counterfactuals.changed_reference import (
    Arguments,
    Change,
    Keywords,
    with_arguments,
)
from onnxproof.reference.dispatch import Mode, named_arguments
from onnxproof.reference.trace import run_under

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.workbench import Workbench

_MOST_ELEMENTS = 64
"""A tensor of so many elements that is written down in Python counts as numbers. Not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleNumber:
    """A call to which the example gave another number than the witness."""

    call: int
    op: str
    number: Any
    """What the example gave."""
    change: Change
    """The call with that number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    op: str
    arguments: dict[str, Any]
    """Those that are plain numbers."""
    result: Any
    """Where that is a plain number."""


class _NumberRecorder(Mode):
    """Records the plain numbers that each call was given, and its result where that is one."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run and record."""
        result = func(*args, **(kwargs or {}))
        bound = named_arguments(func, args, kwargs)
        op = func._schema.name.split("::")[-1]
        number = None
        if isinstance(result, bool | int | float):
            number = result
        elif op == "lift_fresh" and result.numel() <= _MOST_ELEMENTS:
            number = result.tolist()  # `torch.tensor([width, height])`
        arguments = {name: value for name, value in bound.items() if _is_plain(value)}
        self.calls.append(_Call(op=op, arguments=arguments, result=number))
        return result


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(v) for v in value)
    return isinstance(value, bool | int | float)


def takes_other_path(workbench: "Workbench") -> bool:
    """True when the witness and the example make the module call other operations."""
    recorded = _record_both(workbench)
    if recorded is None:
        return False
    here, there = recorded
    return [call.op for call in here] != [call.op for call in there]


def example_numbers(workbench: "Workbench") -> Iterator[ExampleNumber]:
    """The calls to which the example gave other numbers than the witness, as far as both take one path."""
    recorded = _record_both(workbench)
    if recorded is None:
        return
    for place, (here, there) in enumerate(zip(*recorded, strict=False)):
        if here.op != there.op:
            return
        if here.result is not None and here.result != there.result:
            yield ExampleNumber(
                call=place,
                op=here.op,
                number=there.result,
                change=_return_number(there.result),
            )
        elif here.arguments != there.arguments:
            changed = {
                name: value
                for name, value in there.arguments.items()
                if here.arguments.get(name) != value
            }
            yield ExampleNumber(
                call=place,
                op=here.op,
                number=next(iter(changed.values()), None),
                change=with_arguments(**changed),
            )


def _record_both(workbench: "Workbench") -> tuple[list[_Call], list[_Call]] | None:
    """The calls on the witness and on the example; None where the module does not run on one of them."""
    scene, session = workbench.scene, workbench.located.module_session
    here = _NumberRecorder()
    there = _NumberRecorder()
    try:
        run_under(session, scene.case.inputs, here)
        run_under(session, scene.reference.example(), there)
    except Exception:  # the module may refuse its own example in float64: then nothing can be said
        return None
    return here.calls, there.calls


def _return_number(number: Any) -> Change:
    """The example's number in place of the witness's, as a tensor where it was one."""

    def change(func: Any, args: Arguments, kwargs: Keywords) -> Any:
        if func._schema.name.endswith("lift_fresh"):
            return args[0].new_tensor(number)
        return number

    return change
