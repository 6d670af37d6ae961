"""How far a run is, for whoever shows it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from onnxproof.results.proof import Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a progress bar shows."""

    case: str
    done: int
    elapsed: float
    budget: float
    step: str = "cases"
    proof: Proof | None = None
    """The proof as it stands when explaining begins: whoever wants it safe keeps it now."""


Report = Callable[[Progress], None]


def with_proofs(progress: Report | None, change: Callable[[Proof], Proof]) -> Report | None:
    """The same observer for a caller that adds to a proof: the early proof gets what the final one will have."""
    if progress is None:
        return None

    def report(state: Progress) -> None:
        if state.proof is not None:
            state = replace(state, proof=change(state.proof))
        progress(state)

    return report
