"""All backends of one verification: opened one by one, each on its own, so that one which fails takes no other with it."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from onnxproof.errors import BackendError, BackendMissing, ModelError
from onnxproof.options import Policy
from onnxproof.results import Finding, Gap, Signature, Verdict, judging
from onnxproof.runtimes import Session, require
from onnxproof.runtimes.session.execution import Candidate, Clock

_ENOUGH = 6
"""Cases on which a backend differs beyond tolerance before it is left out of the rest: its verdict is known, and the user is waiting."""


class Fleet:
    """The candidates: `everyone` that could be opened, and `active`, a list that shrinks between two cases."""

    def __init__(
        self,
        backends: Sequence[str],
        path: Path,
        signature: Signature,
        clock: Clock,
        open_session: Callable[[str], Session | None],
    ) -> None:
        for backend in backends:  # one that isn't installed is told before anything runs
            try:
                require(backend)
            except BackendMissing:
                raise
            except BackendError:  # broken: it is told below, with those that can't be opened
                continue
        self.active: list[Candidate] = []
        self.everyone: list[Candidate] = []
        self._findings: list[Finding] = []
        self._bad: Counter[str] = Counter()
        failed: list[BackendError | ModelError] = []
        for backend in backends:
            try:
                self.everyone.append(
                    Candidate(backend, path, signature, clock, session=open_session(backend))
                )
            except BackendMissing:
                self.close()
                raise
            except (BackendError, ModelError) as why:
                failed.append(why)
                notes = "; ".join(note for note in why.notes if note not in why.what)
                self._findings.append(
                    Finding(
                        code=why.code,
                        what=f"{backend}: {why.what}" + (f": {notes}" if notes else ""),
                        help=why.help,
                        counts=True,
                    )
                )
        if not self.everyone:
            raise failed[0]
        self.active += self.everyone

    def note(self, gaps: Sequence[Gap], policy: Policy) -> None:
        """Count what a case gave; a backend whose verdict is clear rests from now on."""
        for backend in {
            gap.backend for gap in gaps if judging.judge_gap(gap, policy) is Verdict.DIVERGED
        }:
            self._bad[backend] += 1
        self.active[:] = [
            candidate for candidate in self.active if self._bad[candidate.backend] < _ENOUGH
        ]

    @property
    def done(self) -> bool:
        """True when the verdict on every backend is clear."""
        return not self.active

    @property
    def hung(self) -> bool:
        """True when no backend is left that answers in time."""
        return all(candidate.hung is not None for candidate in self.everyone)

    def findings(self) -> list[Finding]:
        """What the runtimes themselves gave cause to say."""
        return [
            *self._findings,
            *(finding for candidate in self.everyone for finding in candidate.findings()),
        ]

    def close(self) -> None:
        """Let every session go."""
        for candidate in self.everyone:
            candidate.close()
