"""The base of our dispatch modes: each sees every aten operation of a module's own Python code."""

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
    arguments = func._schema.arguments
    bound = {a.name: a.default_value for a in arguments if a.has_default_value()}
    bound.update(zip((a.name for a in arguments), args, strict=False))
    bound.update(kwargs or {})
    return {a.name: bound[a.name] for a in arguments if a.name in bound}
