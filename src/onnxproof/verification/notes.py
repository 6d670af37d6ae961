"""The note on a difference that lives in an odd domain: what it is, with both outputs where they differ most."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxproof.results import Case, Domain, Gap, Note, Status

Array = np.ndarray[Any, Any]
_SHOWN = 6
"""Elements that a note shows."""
_WORDS = {
    Domain.TIES: "equal values are taken in another order",
    Domain.EMPTY: "an empty tensor has another shape",
    Domain.NAN: "NaN is handled otherwise",
    Domain.INF: "infinities are handled otherwise",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A case that a candidate refuses, and its words."""

    case: Case
    backend: str
    why: str


def refused_gaps(
    refusal: Refusal, outputs: Sequence[str], answers: Sequence[Array]
) -> tuple[list[Gap], list[Note]]:
    """One gap for each output of a candidate that refuses the case, and a note where the case is of an odd domain."""
    case = refusal.case
    gaps = [
        Gap(
            case=case.name,
            group=case.group,
            backend=refusal.backend,
            output=output,
            status=Status.REFUSED,
            detail=refusal.why,
            domain=case.domain,
        )
        for output in outputs
    ]
    if case.domain is None:
        return gaps, []
    notes = [
        Note(
            domain=case.domain,
            case=case.name,
            backend=refusal.backend,
            output=output,
            what="the candidate refuses it",
            reference=show(answer, answer),
            candidate=refusal.why,
        )
        for output, answer in zip(outputs, answers, strict=True)
    ]
    return gaps, notes


def note_of(gap: Gap, reference: Array, candidate: Array) -> Note:
    """The note of a gap in an odd domain; without one, of the NaN or infinities that the reference itself has."""
    domain = gap.domain
    if domain is None:
        domain = _nonfinite_domain(reference)
    if domain is Domain.MASKED:
        hidden = reference.size - gap.compared
        what = (
            f"{hidden:,} of {reference.size:,} values are of places that a mask hides, or of queries that see nothing; "
            f"the rest is {gap.noise_ratio:.1f} times the noise"
        )
    else:
        what = _WORDS[domain]
    return Note(
        domain=domain,
        case=gap.case,
        backend=gap.backend,
        output=gap.output,
        what=what,
        reference=show(reference, candidate),
        candidate=show(candidate, reference),
    )


def _nonfinite_domain(array: Array) -> Domain:
    if np.isnan(array.astype(np.complex128)).any():
        return Domain.NAN
    return Domain.INF


def show(array: Array, other: Array) -> str:
    """The elements that differ most, in their order, or the shape where shapes do."""
    if array.shape != other.shape or array.size == 0:
        return f"{array.dtype}{list(array.shape)}"
    one = array.reshape(-1)
    two = other.reshape(-1)
    same = (one == two) | ((one != one) & (two != two))
    differing = np.flatnonzero(~same)
    with np.errstate(all="ignore"):
        distance = np.abs(
            one[differing].astype(np.complex128) - two[differing].astype(np.complex128)
        )
    largest_first = np.argsort(-np.where(np.isfinite(distance), distance, np.inf), kind="stable")
    shown = np.sort(differing[largest_first[:_SHOWN]])
    elements = [f"[{_index(place, array.shape)}]={one[place]}" for place in shown]
    return ", ".join(elements) or "the same"


def _index(place: int, shape: tuple[int, ...]) -> str:
    return ",".join(str(int(index)) for index in np.unravel_index(place, shape))
