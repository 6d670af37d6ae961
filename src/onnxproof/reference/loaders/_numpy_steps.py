"""The values that a function of numpy computes on the way to its answer, each with the line of Python that did."""

import linecache
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxproof.results import Source

Array = np.ndarray[Any, Any]
Step = tuple[str, Array, Source | None]
_OURS = ("/onnxproof/", "/numpy/", "<")


class _Recorded(np.ndarray[Any, Any]):
    """An array whose ufuncs and functions are recorded; what they give is one, too."""

    steps: "list[Step] | None" = None

    def __array_finalize__(self, origin: Any) -> None:
        """A view of a recorded array is recorded in the same list."""
        self.steps = getattr(origin, "steps", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """An elementwise operation, a product of matrices, or a reduction by one."""
        out = kwargs.get("out")
        result = getattr(ufunc, method)(*_plain(inputs), **_plain(kwargs))
        recorded = self._recorded(ufunc.__name__, result)
        return recorded if out is None else out[0]

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Any other function of numpy: as one step."""
        return self._recorded(func.__name__, func(*_plain(args), **_plain(kwargs)))

    def _recorded(self, name: str, result: Any) -> Any:
        if isinstance(result, tuple | list):
            return type(result)(self._recorded(name, part) for part in result)
        if not isinstance(result, np.ndarray | np.generic):
            return result
        array = np.asarray(result)
        if self.steps is not None:
            self.steps.append((name, array.copy(), _user_line()))
        view = array.view(_Recorded)
        view.steps = self.steps
        return view


def record(
    function: Callable[[Mapping[str, Array]], Any], inputs: Mapping[str, Array]
) -> list[Step]:
    """What a call computes step by step; nothing where the function can't be called with such arrays."""
    steps: list[Step] = []
    arrays = {}
    for name, array in inputs.items():
        arrays[name] = array.view(_Recorded)
        arrays[name].steps = steps
    try:
        function(arrays)
    except Exception:  # the user's own code may refuse what is no plain array
        return []
    return steps


def _plain(value: Any) -> Any:
    """The same without recorded arrays, in lists and dicts too."""
    if isinstance(value, _Recorded):
        return value.view(np.ndarray)
    if isinstance(value, tuple | list):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value


def _user_line() -> Source | None:
    """The innermost line that is neither numpy's nor ours."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not any(part in file for part in _OURS[:2]) and not file.startswith(_OURS[2]):
            text = linecache.getline(file, frame.f_lineno).strip()
            return Source(file=file, line=frame.f_lineno, text=text)
        frame = frame.f_back
    return None
