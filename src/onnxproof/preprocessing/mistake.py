"""A slip: one step of a preprocessing done otherwise, tried by doing it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
CLOSE = 1e-5
"""Share of a tensor's largest value up to which two tensors are one: another order of the same float32 arithmetic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Both:
    """What two preprocessings make of one raw input."""

    want: Array
    got: Array
    raw: tuple[Any, ...] = ()
    own: Callable[..., Array] = lambda *raw: np.zeros(0)
    """The model's own preprocessing, as far as this tensor."""
    theirs: Callable[..., Array] = lambda *raw: np.zeros(0)

    def array(self) -> Array | None:
        """The raw input, where it is one array."""
        raw: Any = self.raw[0] if len(self.raw) == 1 else None
        raw = raw.detach().cpu().numpy() if hasattr(raw, "detach") else raw
        return raw if isinstance(raw, np.ndarray) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slip:
    """What is said of it, what comes out with it, and what that should then be: by itself, what the deployment makes."""

    what: str
    made: Array
    target: Array | None = None
    sure: bool = True
    """False where it was only seen, not done: such an explanation is likely, not proven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why two preprocessings differ; empty words where no slip explains it."""

    what: str = ""
    left: float = 1.0
    """The relative difference that is left with the slip granted."""
    sure: bool = False


def scale_of(array: Array) -> float:
    """The largest value."""
    return float(np.abs(array.astype(np.float64)).max(initial=0)) or 1.0


def same(want: Array, got: Array) -> bool:
    """Equal but for the rounding of float32 arithmetic in another order; whole numbers must be equal."""
    if want.shape != got.shape:
        return False
    if "f" not in want.dtype.kind + got.dtype.kind:
        return bool((want == got).all())
    off = want.astype(np.float64) - got.astype(np.float64)
    return bool(
        np.abs(off[~(np.isnan(want.astype(np.float64)) & np.isnan(got.astype(np.float64)))]).max(
            initial=0
        )
        <= CLOSE * scale_of(want)
    )
