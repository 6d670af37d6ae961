"""What locating and the causes work on, and what locating gives back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.diagnosis.locate.port_exchange import PortExchange
from onnxproof.numerics.measure import as_real
from onnxproof.numerics.relative_error import relative_error
from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.options import Policy
from onnxproof.reference.protocol import Reference
from onnxproof.reference.traced_value import Fetch, TracedValue
from onnxproof.results import (
    Case,
    Gap,
    Location,
    NoiseKind,
    Profile,
    Signature,
    Stage,
    Suspect,
)
from onnxproof.system.deadline import Deadline

Array = np.ndarray[Any, Any]


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Scene:
    """One case that shows the fault, and both models."""

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
    policy: Policy = field(default_factory=Policy)
    """The user's limits."""
    deadline: Deadline = field(default_factory=Deadline.never)
    """When looking for the node must end: the first node that stands out is named then."""

    @property
    def file_stage(self) -> Stage:
        """The stage of a fault in the file itself: an export of a module, or a change of another file."""
        if self.reference.tree is not None:
            return Stage.EXPORT
        return Stage.GRAPH

    def error(
        self, answers: Sequence[Array | None] | None, expected: Sequence[Array] | None = None
    ) -> float:
        """The largest relative error of answers over the outputs that count; infinite where there are none.

        They are compared with the truth, or with `expected`, the answers of a changed model. Then the error is taken
        both ways, since a model that answers with zeros only is near to nothing, and answers of NaN alone are not
        comparable, since any model that gives NaN would explain them.
        """
        if expected is None:
            return self._largest_error(answers, self.truth)
        if answers is None or len(answers) != len(expected):
            return float("inf")
        pairs = self._counting_pairs(answers, expected)
        if not any(has_finite(answer) for answer, _ in pairs):
            return float("inf")
        errors = [relative_error(answer, other) for answer, other in pairs]
        errors += [relative_error(other, answer) for answer, other in pairs if answer is not None]
        return max(errors, default=0.0)

    def _largest_error(
        self, answers: Sequence[Array | None] | None, truth: Sequence[Array]
    ) -> float:
        """Against the truth, one way."""
        if answers is None or len(answers) != len(truth):
            return float("inf")
        pairs = self._counting_pairs(answers, truth)
        return max((relative_error(answer, true) for answer, true in pairs), default=0.0)

    def _counting_pairs(
        self, answers: Sequence[Array | None], others: Sequence[Array]
    ) -> list[tuple[Array | None, Array]]:
        """Answers beside what they are compared with, for the outputs that count."""
        counts = self.steady or (True,) * len(others)
        triples = zip(answers, others, counts, strict=True)
        return [(answer, other) for answer, other, counted in triples if counted]


_ROUNDINGS = 2
"""Re-runs that tell what rounding costs a reference which is wider than its file."""


def rounding_distances(
    reference: Reference,
    inputs: Mapping[str, Array],
    answers: Sequence[Array],
    truth: Sequence[Array],
) -> list[float]:
    """How far rounding alone takes each output from the truth: of a reference that computes in float64 what its file does not, by re-runs too."""
    samples = [list(answers)]
    if reference.kind is NoiseKind.WIDER:
        samples += [reference.rerun(inputs, seed) for seed in range(_ROUNDINGS)]
    return [
        max(relative_error(sample[place], true) for sample in samples)
        for place, true in enumerate(truth)
    ]


def has_finite(answer: Array | None) -> bool:
    """Whether an answer has any finite element."""
    if answer is None:
        return False
    return bool(np.isfinite(as_real(answer).astype(np.float64, copy=False)).any())


def _fetch_nothing(place: int) -> Array | None:
    """For a fault that was located without tracing the module."""
    return None


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Located:
    """Where it went wrong, and what was learned on the way."""

    location: Location
    traced_values: list[TracedValue] = field(default_factory=list)
    """What the module computed on this case; empty where it was not traced, or where the reference is a graph."""
    counterparts: Mapping[str, TracedValue] = field(default_factory=dict)
    """For a named node the module's own operation that it should have been."""
    matched: frozenset[int] = frozenset()
    """The places of the traced values that were found in the file."""
    fetch: Fetch = _fetch_nothing
    """Gives the value at a place of the traced values."""
    module_session: Any = None
    """The module in float64, as it was traced."""
    exchanged: PortExchange | None = None
    """The right pairing of inputs or outputs, where the signature's is wrong."""
    profile: Profile | None = None
    """The noise ratio along the graph, as far as it was measured on the way."""


def name_suspects(location: Location, suspects: Sequence[Suspect]) -> Location:
    """The location with its nodes, most guilty first, and with the module and the line of the first."""
    if not suspects:
        return location
    return replace(
        location,
        nodes=tuple(suspect.node for suspect in suspects),
        suspects=tuple(suspects),
        module=suspects[0].module,
        source=suspects[0].source,
    )
