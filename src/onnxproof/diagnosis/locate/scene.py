"""What locating and explaining work on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.diagnosis.locate.match import relative
from onnxproof.numerics.measure import as_real
from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.reference.protocol import Reference
from onnxproof.results import Case, Gap, Profile, Signature
from onnxproof.system.deadline import Deadline

Array = np.ndarray[Any, Any]


@dataclass(slots=True, kw_only=True)
class Scene:
    """Everything locating and explaining work on: one case that shows the fault, and both models."""

    reference: Reference
    path: Path
    file: OnnxFile
    signature: Signature
    case: Case
    backend: str
    truth: list[Array]
    dtypes: list[np.dtype[Any]]
    """In which the reference answers."""
    noise: float
    """The relative error that rounding explains for this case."""
    steady: tuple[bool, ...] = ()
    """Which outputs count: not a choice that rounding decides on this case, beside an output that is to be explained."""
    gap: Gap | None = None
    """The gap that is to be explained."""
    deadline: Deadline = field(default_factory=Deadline.never)
    """When looking for the node must end: the first node that stands out is named then."""
    entries: list[Any] = field(default_factory=list)
    """What the module computed on this case, once it was followed."""
    counterparts: dict[str, Any] = field(default_factory=dict)
    """For a named node the module's own operation that it should have been."""
    matched: set[int] = field(default_factory=set)
    """The module's values that were found in the file."""
    fetch: Any = None
    """A way to have the value of an entry."""
    wide: Any = None
    """The module in float64, as it was followed."""
    exchanged: Any = None
    """The right pairing, where the given one is wrong."""
    profile: Profile | None = None
    """The noise ratio along the graph, as far as it was seen on the way."""

    def apart(
        self, found: Sequence[Array | None] | None, wanted: Sequence[Array] | None = None
    ) -> float:
        """How far answers are from the truth, or from others: the largest relative distance over the outputs that count; infinite where there are none."""
        others = self.truth if wanted is None else wanted
        if found is None or len(found) != len(others):
            return float("inf")
        counts = self.steady or (True,) * len(others)
        pairs = [(f, w) for f, w, steady in zip(found, others, counts, strict=True) if steady]
        if wanted is not None and not any(
            f is not None and np.isfinite(as_real(f).astype(np.float64, copy=False)).any()
            for f, _ in pairs
        ):
            return float(
                "inf"
            )  # whatever gives nothing but NaN would explain an answer that is nothing but NaN
        both = (
            [(w, f) for f, w in pairs if f is not None] if wanted is not None else []
        )  # nor is a changed module that says nothing but zeros near to any answer
        return max((relative(f, w) for f, w in [*pairs, *both]), default=0.0)
