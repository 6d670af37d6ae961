"""In which precision operators compute."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def widen(x: Array) -> Array:
    """Half precision is widened to float32, as every runtime does; float32 and float64 stay."""
    if x.dtype in (np.float32, np.float64):
        return x
    return x.astype(np.float32)
