"""The note on a difference that lives in an odd domain: what it is, with both outputs where they differ most."""

from typing import Any

import numpy as np

from onnxproof.results import Domain, Gap, Note

Array = np.ndarray[Any, Any]
_SHOWN = 6


def note_of(gap: Gap, reference: Array, candidate: Array) -> Note:
    """The note of a gap in an odd domain; without one, of the NaN or infinities that the reference itself has."""
    domain = gap.domain
    if domain is None:
        domain = Domain.NAN if np.isnan(reference.astype(np.complex128)).any() else Domain.INF
    what = {
        Domain.TIES: "equal values are taken in another order",
        Domain.EMPTY: "an empty tensor has another shape",
        Domain.NAN: "NaN is handled otherwise",
        Domain.INF: "infinities are handled otherwise",
        Domain.MASKED: f"{reference.size - gap.compared:,} of {reference.size:,} values are of places that a mask hides, or of queries that see nothing; "
        f"the rest is {gap.noise_ratio:.1f} times the noise",
    }[domain]
    return Note(
        domain=domain,
        case=gap.case,
        backend=gap.backend,
        output=gap.output,
        what=what,
        reference=show(reference, candidate),
        candidate=show(candidate, reference),
    )


def show(array: Array, other: Array) -> str:
    """The elements that differ most, in their order, or the shape where shapes do."""
    if array.shape != other.shape or array.size == 0:
        return f"{array.dtype}{list(array.shape)}"
    a, b = array.reshape(-1), other.reshape(-1)
    differ = np.flatnonzero(~((a == b) | ((a != a) & (b != b))))
    with np.errstate(all="ignore"):
        apart = np.abs(a[differ].astype(np.complex128) - b[differ].astype(np.complex128))
    most = np.sort(
        differ[np.argsort(-np.where(np.isfinite(apart), apart, np.inf), kind="stable")[:_SHOWN]]
    )
    return (
        ", ".join(
            f"[{','.join(str(int(i)) for i in np.unravel_index(k, array.shape))}]={a[k]}"
            for k in most
        )
        or "the same"
    )
