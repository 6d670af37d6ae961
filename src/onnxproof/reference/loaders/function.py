"""A plain function from arrays to arrays: `predict.py:predict`.

It is called by keyword where its parameters have the names of the inputs, otherwise in their order. Data frames, tensors and anything that numpy
can read are taken as answers.
"""

import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from onnxproof.reference.loaders import (
    ArrayModel,
    Inputs,
    PlainModel,
    Step,
    _jax_steps,
    _numpy_steps,
    widened,
)

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def matches(thing: Any) -> bool:
    """Anything that can be called."""
    return callable(thing)


def open(thing: Any) -> ArrayModel:
    """The function as it is."""
    return _Function(thing)


class _Function(PlainModel):
    def __init__(self, function: Any) -> None:
        self._function = function
        self._uses_jax = False

    def call(self, inputs: Inputs) -> Any:
        """By keyword, or in order."""
        answer = call_by_name(self._function, inputs)
        self._uses_jax |= type(answer).__module__.partition(".")[0] in ("jax", "jaxlib")
        return answer

    def call_wide(self, inputs: Inputs) -> Any:
        """With float64 in, numpy computes in float64, and JAX under x64: whether the function does is seen from its answer."""
        with self._precision():
            return call_by_name(self._function, widened(inputs))

    def steps(self, inputs: Inputs) -> Sequence[Step]:
        """What numpy or JAX computed, operation by operation."""
        if self._uses_jax:
            with self._precision():
                steps = _jax_steps.record(self._call_plainly, widened(inputs))
            return steps or _jax_steps.record(self._call_plainly, inputs)
        return _numpy_steps.record(self._call_plainly, widened(inputs))

    def _call_plainly(self, inputs: Inputs) -> Any:
        return call_by_name(self._function, inputs)

    def _precision(self) -> AbstractContextManager[Any]:
        if not self._uses_jax:
            return nullcontext()
        import jax

        return jax.enable_x64(True)  # type: ignore[no-any-return]


def call_by_name(function: Any, inputs: Inputs) -> Any:
    """Call a function with arrays by the names of its parameters, or in order where the names are others."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return function(*inputs.values())
    names = [name for name, parameter in parameters.items() if parameter.kind in _NAMED]
    if set(inputs) <= set(names):
        return function(**inputs)
    return function(*inputs.values())
