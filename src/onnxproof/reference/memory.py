"""What the truth needs of memory: foreseen by an estimate, survived where it comes, and told."""

from typing import Any

from onnxproof.reference.float64 import TruthSession
from onnxproof.results import Finding
from onnxproof.system import guard

_GB = 1e9
_WORDS = ("not enough memory", "can't allocate memory", "bad_alloc", "out of memory")
"""Of torch's errors, which are RuntimeErrors."""


def memory_findings(module: Any, truth: TruthSession) -> list[Finding]:
    """That a float64 copy of the weights would not fit, where it is not made."""
    needed = weight_bytes_in_float64(module)
    free = guard.available_bytes()
    if not truth.lazy or needed <= free:
        return []
    what = f"a float64 copy of the weights needs about {needed / _GB:.0f} GB, {free / _GB:.0f} are free: the truth goes layer by layer"
    return [Finding(code="truth-by-layer", what=what)]


def weight_bytes_in_float64(module: Any) -> int:
    """What a converted copy of the weights takes."""
    parameters: Any = getattr(module, "parameters", list)()  # a function has none
    return sum(8 * parameter.numel() for parameter in parameters)


def is_out_of_memory(why: BaseException) -> bool:
    """Whether an error of torch or numpy is one of memory."""
    words = str(why).lower()
    return isinstance(why, MemoryError) or any(word in words for word in _WORDS)


def out_of_memory(*, worked: bool) -> Finding:
    """The truth could not be had; for all cases, or from one on."""
    which = "no case has a truth in float64"
    if worked:
        which = "some cases have no truth in float64"
    return Finding(
        code="truth-out-of-memory",
        what=f"{which}, since there was too little memory: their noise is taken from re-runs with fresh rounding, and a small fault may hide in it",
        voids=not worked,
        help="give it more memory, smaller example inputs, or fewer programs beside it",
    )
