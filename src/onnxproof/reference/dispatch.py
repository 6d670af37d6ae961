"""The base of our dispatch modes: each sees every aten operation of a module's own Python code."""

from collections.abc import Callable
from functools import cache
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Mode(TorchDispatchMode):
    """A mode that does not pull in the compiler: torch would import it (seconds) only to switch it off inside us."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def named_arguments(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments by their name in the operator's schema and in its order, defaults included."""
    names, defaults = _parameters(func)
    bound = dict(defaults)
    bound.update(zip(names, args, strict=False))
    bound.update(kwargs or {})
    return {name: bound[name] for name in names if name in bound}


@cache
def _parameters(func: Any) -> tuple[list[str], dict[str, Any]]:
    """Names and defaults of an operator's arguments: torch makes them anew each time it is asked."""
    arguments = func._schema.arguments
    defaults = {a.name: a.default_value for a in arguments if a.has_default_value()}
    return [a.name for a in arguments], defaults


def map_arguments(change: Callable[[Any], Any], value: Any) -> Any:
    """Every argument of a call changed, those in lists too: an operator has no deeper ones, and torch's own trees take eight times as long."""
    if isinstance(value, list):
        return [map_arguments(change, item) for item in value]
    if type(value) is tuple:
        return tuple(map_arguments(change, item) for item in value)
    if isinstance(value, dict):
        return {name: map_arguments(change, item) for name, item in value.items()}
    return change(value)
