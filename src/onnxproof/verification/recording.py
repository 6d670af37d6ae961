"""The cases of a verification that a bundle may hold: the most telling ones, within a limit of bytes.

The order of telling: the example first; then, round by round, the case of each kind (group, sizes, domain) that came nearest to an alarm.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxproof.reference.protocol import Reference
from onnxproof.results import Case, NoiseKind
from onnxproof.verification.case_reference import CaseReference
from onnxproof.verification.case_runner import DISCRETE, ORDERING, Outcome
from onnxproof.verification.masked import Masks
from onnxproof.verification.quantized import Fidelity
from onnxproof.verification.rollout.recorded import Recorder

Array = np.ndarray[Any, Any]
MOST_BYTES = 8 << 20
"""Bytes of tensors that are kept: what a bundle holds beside the model unless it is asked for less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCase:
    """A case with the reference's answer to it, and how near it came to an alarm."""

    case: Case
    reference: CaseReference
    nearness: float

    @property
    def size(self) -> int:
        """Bytes in a bundle: inputs and answers twice (once for other tools), and the truth."""
        answers = _bytes(self.reference.reference)
        truths = _bytes([truth for truth in self.reference.truth if truth is not None])
        return 2 * (_bytes(list(self.case.inputs.values())) + answers) + truths


class Recording:
    """The cases that were kept, with what confirms their noise later."""

    def __init__(
        self,
        reference: Reference,
        op_types: frozenset[str] = DISCRETE,
        masks: Masks | None = None,
        fidelity: Fidelity | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.reference = reference
        self.masks = masks
        self.decides = bool(op_types & DISCRETE)
        """Whether the graph has an operator at which an answer may jump."""
        self.orders = bool(op_types & ORDERING)
        """Whether it has one whose answer depends on the order of equal values."""
        self.quantization: NoiseKind | None = getattr(fidelity, "kind", None)
        """How the noise of a quantized file is simulated; None for others."""
        self.most_bytes = most_bytes
        self.record_rollouts: Recorder = lambda most_bytes: iter(())
        """Runs short rollouts of the reference, for a model in a loop."""
        self._kept: list[RecordedCase] = []
        self._size = 0

    def add(self, case: Case, outcome: Outcome, nearness: float) -> None:
        """Keep a case; the least telling ones make place for it where there is none."""
        reference = outcome.reference
        if reference is None:
            return
        reference.simulated = None  # made again from the file where it is replayed
        recorded = RecordedCase(case=case, reference=reference, nearness=nearness)
        self._kept.append(recorded)
        self._size += recorded.size
        if self._size > self.most_bytes:
            self._kept = within(in_telling_order(self._kept), self.most_bytes)
            self._size = sum(kept.size for kept in self._kept)

    @property
    def cases(self) -> list[RecordedCase]:
        """The kept cases, the most telling first."""
        return in_telling_order(self._kept)


def in_telling_order(cases: Sequence[RecordedCase]) -> list[RecordedCase]:
    """The cases as the module's docstring says."""
    kinds: dict[tuple[Any, ...], list[RecordedCase]] = defaultdict(list)
    for recorded in cases:
        case = recorded.case
        if case.name == "example":
            kinds[()].append(recorded)
        else:
            kinds[case.group, tuple(sorted(case.sizes.items())), case.domain].append(recorded)
    for alike in kinds.values():
        alike.sort(key=lambda recorded: (-recorded.nearness, recorded.case.name))
    ordered = sorted(kinds, key=lambda kind: (kind != (), kind[:1] != ("data",)))
    longest = max(map(len, kinds.values()), default=0)
    return [
        kinds[kind][place]
        for place in range(longest)
        for kind in ordered
        if place < len(kinds[kind])
    ]


def within(ordered: Sequence[RecordedCase], most_bytes: int) -> list[RecordedCase]:
    """The first of them that fit together; the smallest one where none does."""
    kept = []
    total = 0
    for recorded in ordered:
        if total + recorded.size <= most_bytes:
            kept.append(recorded)
            total += recorded.size
    if not kept and ordered:
        return [min(ordered, key=lambda recorded: recorded.size)]
    return kept


def _bytes(arrays: Sequence[Array]) -> int:
    return sum(array.nbytes for array in arrays)
