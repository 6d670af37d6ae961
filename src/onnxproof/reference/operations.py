"""What can be said of one call of an aten operation: its decomposition, its tensors, the user's line that made it."""

import functools
import linecache
import sys
from collections.abc import Iterator
from typing import Any

import torch

from onnxproof.reference.elementary_steps import STEPS, WHOLE
from onnxproof.results import Source


@functools.cache
def decomposition(func: Any) -> Any:
    """The function that does in several steps what `func` does in one; None where there is none, or where nothing new is computed."""
    if func._schema.is_mutable or func.overloadpacket in WHOLE or is_view(func):
        return None
    return STEPS.get(func) or _decompositions().get(func)


@functools.cache
def is_view(func: Any) -> bool:
    """True for an operation that only looks at its input's memory in another way."""
    return not func._schema.is_mutable and any(
        result.alias_info is not None for result in func._schema.returns
    )


@functools.cache
def _decompositions() -> dict[Any, Any]:
    """Torch's own; loading them takes half a second."""
    from torch._decomp import core_aten_decompositions

    return dict(core_aten_decompositions())


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in nested arguments."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def user_line() -> Source | None:
    """The innermost line that is neither torch's nor ours; None where the module has no line of its own, such as a bare Sequential."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.endswith("onnxproof/reference/torch_session.py"):
            return None  # we called the module here: whoever called us is not its author
        if _is_user_file(file):
            line = frame.f_lineno
            return Source(
                file=file,
                line=line,
                text=linecache.getline(file, line).strip(),
            )
        frame = frame.f_back
    return None


def _is_user_file(file: str) -> bool:
    """Whether a file is neither of torch, nor of Python, nor ours."""
    if file.startswith("<"):
        return False
    return not any(part in file for part in ("/torch/", "/onnxproof/", "/contextlib"))


def op_name(func: Any) -> str:
    """The name of an operation without its namespace."""
    name: str = func._schema.name.split("::")[-1]
    return name


def is_plain(value: Any) -> bool:
    """Whether an argument is a number, a text or a list of such."""
    if not isinstance(value, bool | int | float | str | list | tuple | type(None)):
        return False
    return not any(True for _ in tensors_in(value))
