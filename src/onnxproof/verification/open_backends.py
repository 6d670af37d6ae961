"""All backends of one verification: opened one by one, each on its own, so that one which fails takes no other with it."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from onnxproof.errors import BackendError, BackendMissing, ModelError
from onnxproof.options import Policy
from onnxproof.results import Finding, Gap, Signature, Verdict, judging
from onnxproof.runtimes import Session, parse, require
from onnxproof.runtimes.session.execution import Candidate, Clock

_ENOUGH = 6
"""Cases on which a backend differs beyond tolerance before it is left out of the rest: its verdict is known, and the user is waiting (not measured)."""


def open_without(optimizers: Sequence[str], backend: str, path: Path) -> Session | None:
    """A session with some optimizers of ONNX Runtime off, for trying a fix; None leaves it to the backend."""
    key, option = parse(backend)
    if not optimizers or key != "ort":
        return None
    from onnxproof.runtimes import ort

    return ort.open(path, option, disabled_optimizers=tuple(optimizers))


class Fleet:
    """The candidates: `everyone` that could be opened, and `active`, a list that shrinks between two cases."""

    def __init__(
        self,
        backends: Sequence[str],
        path: Path,
        signature: Signature,
        clock: Clock,
        open_session: Callable[[str], Session | None],
        check: Callable[[str], object] = require,
    ) -> None:
        """`open_session` may give a session of its own for a backend; `check` raises for one that isn't installed."""
        for backend in backends:  # one that isn't installed is an error before anything runs
            try:
                check(backend)
            except BackendMissing:
                raise
            except BackendError:  # broken: a finding below, with those that can't be opened
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
                words = [backend, why.what, notes]
                self._findings.append(
                    Finding(
                        code=why.code,
                        what=": ".join(filter(None, words)),
                        help=why.help,
                        counts=True,
                    )
                )
        if not self.everyone:
            raise failed[0]
        self.active += self.everyone

    def note(self, gaps: Sequence[Gap], policy: Policy) -> None:
        """Count what a case gave; a backend whose verdict is clear gets no further case."""
        diverged = [gap for gap in gaps if judging.judge_gap(gap, policy) is Verdict.DIVERGED]
        self._bad.update({gap.backend for gap in diverged})
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
        """What is to be known of the runtimes themselves."""
        findings = list(self._findings)
        for candidate in self.everyone:
            findings += candidate.findings()
        return findings

    def close(self) -> None:
        """Close every session."""
        for candidate in self.everyone:
            candidate.close()
