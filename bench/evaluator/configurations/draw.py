"""What a configuration is, and how its numbers are drawn."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One node with its inputs; None where an optional input is missing."""

    inputs: list[Array | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[bool, ...] = (True,)
    """Which outputs the node has; those that are False have no name."""
    domain: str = "com.microsoft"
    expected: list[Array] | None = None
    """The outputs by other means, for an operator that the CPU has no kernel for."""
    compared: Array | None = None
    """Where the first output is compared; everywhere if None."""
    rounds: bool = False
    """Whether the kernel may round its inputs to 8 bits."""


class Draw:
    """Random numbers of the kinds that inputs have."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def floats(self, *shape: int) -> Array:
        """Normal numbers in float32."""
        return self.rng.standard_normal(shape).astype(np.float32)

    def bytes(self, *shape: int) -> Array:
        """Unsigned bytes."""
        return self.rng.integers(0, 256, shape).astype(np.uint8)

    def signed(self, *shape: int) -> Array:
        """Signed bytes."""
        return self.rng.integers(-128, 128, shape).astype(np.int8)

    def scales(self, *shape: int, size: float = 0.02) -> Array:
        """Positive numbers around `size`."""
        return (self.rng.uniform(0.3, 1.7, shape) * size).astype(np.float32)

    def integers(self, low: int, high: int, *shape: int) -> Array:
        """Integers from `low` up to, without, `high`."""
        return self.rng.integers(low, high, shape)

    def size(self, low: int, high: int) -> int:
        """One size, both ends included."""
        return int(self.rng.integers(low, high + 1))

    def one_of(self, *choices: Any) -> Any:
        """One of several."""
        return choices[int(self.rng.integers(len(choices)))]

    def coin(self) -> bool:
        """Yes or no."""
        return bool(self.rng.integers(2))

    def maybe(self, value: Any) -> Any:
        """The value, or None."""
        if self.coin():
            return value
        return None


CONFIGURATIONS: dict[str, Callable[[Draw], Configuration]] = {}
"""For each operator what draws a configuration of it."""


def configuration(
    *names: str,
) -> Callable[[Callable[[Draw], Configuration]], Callable[[Draw], Configuration]]:
    """Register a function that draws a configuration of these operators."""

    def register(function: Callable[[Draw], Configuration]) -> Callable[[Draw], Configuration]:
        for name in names:
            CONFIGURATIONS[name] = function
        return function

    return register
