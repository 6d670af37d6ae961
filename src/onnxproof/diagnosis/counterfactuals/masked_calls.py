"""Calls of the module that decide what a mask shows."""

from onnxproof.diagnosis.counterfactuals.workbench import Workbench
from onnxproof.reference.traced_value import TracedValue

_NUMBERS = ("scalar_tensor", "full", "full_like", "lift_fresh")
"""Operators that make a tensor of a number."""
_COUNTS = ("add", "sub", "arange", "cumsum")
"""Operators that count places."""
_MASKS = ("Where", "And", "Or", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
"""Operators that choose places, or compare them."""
_VIEWS = ("Unsqueeze", "Squeeze", "Reshape", "Expand", "Transpose", "Cast", "Identity")


def begins_at_mask(workbench: Workbench) -> bool:
    """Whether the first node that differs, views left out, chooses places: all that was computed from positions before it is right."""
    computing = (node.op_type for node in workbench.nodes if node.op_type not in _VIEWS)
    return next(computing, "") in _MASKS


def decides_what_is_seen(workbench: Workbench, entry: TracedValue) -> bool:
    """Whether a call makes the number that a located Where reads, or the places that a located mask compares."""
    suspect = workbench.suspect
    if entry.op in _NUMBERS and suspect is not None and suspect.op_type == "Where":
        return True
    counts = entry.dtype.startswith("int") and entry.op.rstrip("_") in _COUNTS
    return counts and begins_at_mask(workbench)
