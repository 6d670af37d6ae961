"""A function of JAX: one that `jax.jit` made, or a module of Flax or Equinox that can be called. Its truth is asked under x64."""

import sys
from collections.abc import Sequence
from typing import Any

from onnxproof.reference.loaders import (
    ArrayModel,
    Inputs,
    PlainModel,
    Step,
    _jax_steps,
    widened,
)
from onnxproof.reference.loaders.function import call_by_name

_PACKAGES = ("jax", "jaxlib", "flax", "equinox")


def matches(thing: Any) -> bool:
    """Whether its class is one of JAX's, or of a library of modules for it."""
    if "jax" not in sys.modules or not callable(thing):
        return False
    names = {kind.__module__.partition(".")[0] for kind in type(thing).__mro__}
    return bool(names & set(_PACKAGES))


def open(thing: Any) -> ArrayModel:
    """The function as it is."""
    return _JaxFunction(thing)


class _JaxFunction(PlainModel):
    def __init__(self, function: Any) -> None:
        self._function = function

    def call(self, inputs: Inputs) -> Any:
        """In JAX's own precision, which is float32 unless the user chose another."""
        return call_by_name(self._function, inputs)

    def call_wide(self, inputs: Inputs) -> Any:
        """Under x64: float32 parameters meet float64 inputs, and JAX widens."""
        import jax

        with jax.enable_x64(True):
            return call_by_name(self._function, widened(inputs))

    def steps(self, inputs: Inputs) -> Sequence[Step]:
        """What each equation of its jaxpr gives, under x64; where it refuses float64 (a convolution with weights in float32 does), as it is."""
        import jax

        with jax.enable_x64(True):
            steps = _jax_steps.record(self.call, widened(inputs))
        return steps or _jax_steps.record(self.call, inputs)
