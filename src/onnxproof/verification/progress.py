"""How far a run is, for whoever shows it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from onnxproof.results import Finding
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
_EXPLAINING = Finding(
    code="explaining",
    what="the explanation is not finished: the verdict stands, and the node and the cause are still looked for",
    help="where this is the last word, the process ended before it was done; `--no-explain` leaves it out",
)
"""In the proof that is handed on before explaining begins, and not in the one after it."""


def with_proofs(progress: Report | None, change: Callable[[Proof], Proof]) -> Report | None:
    """The same observer for a caller that adds to a proof: the early proof gets what the final one will have."""
    if progress is None:
        return None

    def report(state: Progress) -> None:
        if state.proof is not None:
            state = replace(state, proof=change(state.proof))
        progress(state)

    return report


def explaining(proof: Proof) -> Proof:
    """The proof as it is handed on before explaining begins."""
    return replace(proof, findings=(*proof.findings, _EXPLAINING))


def announcer(progress: Report | None, budget_s: float) -> Callable[[str], None]:
    """Tells the progress bar what is done before the cases, such as an export."""
    start = time.monotonic()

    def announce(what: str) -> None:
        if progress is not None:
            elapsed = time.monotonic() - start
            progress(Progress(case=what, done=0, elapsed=elapsed, budget=budget_s))

    return announce
