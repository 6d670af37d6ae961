"""The proof: everything that was measured, and the ways to hand it on."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onnxproof.errors import VerdictError
from onnxproof.options import Policy
from onnxproof.results import (
    CalibrationRange,
    Case,
    Cause,
    Coverage,
    CrossCheck,
    Dropped,
    ExportRecord,
    Finding,
    Gap,
    Location,
    Note,
    Profile,
    Share,
    Signature,
    Verdict,
    judging,
)

SCHEMA = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What `verify` returns. It has no truth value of its own: ask for `proof.verdict`."""

    verdict: Verdict
    subject: str
    candidate: str
    backends: tuple[str, ...]
    gaps: tuple[Gap, ...]
    notes: tuple[Note, ...] = ()
    findings: tuple[Finding, ...] = ()
    location: Location | None = None
    causes: tuple[Cause, ...] = ()
    tried: tuple[str, ...] = ()
    """The causes that were ruled out, each with its reason."""
    untried: tuple[str, ...] = ()
    """The causes that were not tried, each with its reason: no time was left, or the try failed."""
    waterfall: tuple[Share, ...] = ()
    """Of a quantized candidate: where its error comes from, step by step."""
    signature: Signature
    policy: Policy
    coverage: Coverage = field(default_factory=Coverage)
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The dynamic dims of each case."""
    profile: Profile | None = None
    """The noise ratio along the graph, where it was asked for or the fault was located."""
    ranges: tuple[CalibrationRange, ...] = ()
    """Of a quantized candidate: its ranges, and how they fit data that did not choose them."""
    dropped: tuple[Dropped, ...] = ()
    cross: CrossCheck | None = None
    """How several backends stand beside each other."""
    error: str = ""
    seed: int = 0
    budget_s: float = 60.0
    complete: bool = True
    """False when the budget ended before the cases did."""
    chosen: tuple[str, ...] = ()
    """The cases that were asked for by name; empty where all were run."""
    replay: str = ""
    """The command (or call) that runs the worst case again."""
    environment: Mapping[str, str] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    passes: Mapping[str, int] = field(default_factory=dict)
    half: str = ""
    """The half precision whose own rounding is the noise here: the file was made for it, and the reference is wider."""
    export: ExportRecord | None = None
    """How the file was made, when `export` made it."""
    witness: Case | None = field(default=None, repr=False, compare=False)
    """The case that shows the fault best; kept in memory for locating, not written to JSON."""
    scene: Any = field(default=None, repr=False, compare=False)
    """What locating worked on; kept in memory for a repro, not written to JSON."""
    located: Any = field(default=None, repr=False, compare=False)
    """What locating learned; kept in memory for a repro and for mending, not written to JSON."""

    def __bool__(self) -> bool:
        raise TypeError(
            "a proof is more than a yes or no: use proof.verdict or proof.raise_for_verdict()"
        )

    @property
    def worst(self) -> Gap | None:
        """The gap that decided, or the one nearest to deciding."""
        counted = [gap for gap in self.gaps if gap.domain is None]
        return max(counted, key=lambda gap: judging.severity(gap, self.policy), default=None)

    @property
    def passed(self) -> bool:
        """True for FAITHFUL, and for DRIFT unless the policy is strict; never when a baseline was left or an input was written to."""
        if any(finding.fails for finding in self.findings):
            return False
        return self.verdict is Verdict.FAITHFUL or (
            self.verdict is Verdict.DRIFT and not self.policy.strict
        )

    def judged(self, policy: Policy) -> "Proof":
        """The same measurements under another policy; nothing is run."""
        if self.error:
            return replace(self, policy=policy)
        return replace(
            self,
            policy=policy,
            verdict=judging.judge(self.gaps, policy, notes=self.notes, findings=self.findings),
        )

    def raise_for_verdict(self) -> None:
        """Raise `VerdictError`, with everything a CI log needs, unless the proof passed."""
        if not self.passed:
            stands = self.verdict is Verdict.FAITHFUL or (
                self.verdict is Verdict.DRIFT and not self.policy.strict
            )
            failed = (
                next((finding for finding in self.findings if finding.fails), None)
                if stands
                else None
            )
            code, what = (
                (failed.code, f"{failed.what}; {failed.help}")
                if failed is not None
                else (f"verdict-{self.verdict.value}", self.sentence())
            )
            raise VerdictError(
                code,
                what,
                where=self.candidate,
                notes=self._facts(),
                help=self.replay and f"replay: {self.replay}",
            )

    def sentence(self) -> str:
        """The verdict in one sentence."""
        worst = self.worst
        if self.verdict is Verdict.ERROR:
            return f"the proof could not be completed: {self.error}"
        if self.verdict is Verdict.VACUOUS or not self.gaps:
            return self._nothing()
        cases = len({gap.case for gap in self.gaps})
        level = self.quality()
        if (
            level is not None
            and worst is not None
            and not worst.lost
            and worst.status.value in ("compared", "dtype")
        ):
            return self._quantized_sentence(worst, level)
        if self.verdict is Verdict.FAITHFUL or worst is None:
            return f"{self.candidate} says what {self.subject} says: {cases} case{'s' * (cases != 1)}, {self._most()}{self._thin()}"
        if judging.judge_gap(worst, self.policy) not in (Verdict.DRIFT, Verdict.DIVERGED) and (
            counted := [f for f in self.findings if f.counts]
        ):
            return f"{self.candidate} does not say what {self.subject} says: {counted[0].what}"
        how = f"{worst.detail}" if worst.status.value not in ("compared", "dtype") else _size(worst)
        word = "drifts from" if self.verdict is Verdict.DRIFT else "does not say what"
        tail = "" if self.verdict is Verdict.DRIFT else " says"
        return f"{self.candidate} {word} {self.subject}{tail}: output `{worst.output}`, case `{worst.case}` on {worst.backend}, {how}"

    def _nothing(self) -> str:
        """Why nothing is proven: by the first finding that says so."""
        found = next((finding.what for finding in self.findings if finding.voids), "")
        if not found:
            return "nothing was compared, so nothing is proven"
        return found if "not enough was compared" in found else f"nothing is proven: {found}"

    def _most(self) -> str:
        """The largest ratio of what counts."""
        ratios = [gap.noise_ratio for gap in self.gaps if gap.domain is None and gap.void is None]
        if not ratios:
            return "and every difference is a note"
        return f"at most {max(ratios):.1f} times the rounding noise{self._whose()}"

    def _thin(self) -> str:
        """Words for a run that left cases out; empty for a whole one."""
        if self.chosen:
            return "; only chosen cases were run"
        return (
            ""
            if self.complete
            else f"; not all cases were run, since the budget of {self.budget_s:g} s ended"
        )

    def _whose(self) -> str:
        return f" of {self.half} itself" if self.half else ""

    def quality(self) -> float | None:
        """Of a quantized candidate: output SQNR in dB over the data it is judged by (the worst output and backend); None for others."""
        found = judging.asked(self.gaps)
        keys = {(gap.backend, gap.output) for gap in found}
        return min(
            (
                judging.pooled_db([gap for gap in found if (gap.backend, gap.output) == key])
                for key in keys
            ),
            default=None,
        )

    def _quantized_sentence(self, worst: Gap, level: float) -> str:
        gaps = [
            gap for gap in self.gaps if gap.domain is None and gap.noise_kind in judging.QUANTIZED
        ]
        most = max((gap.noise_ratio for gap in gaps), default=0.0)
        runtime = f"the runtime adds {most:.2g} times what the graph's own quantization costs"
        judged = judging.asked(self.gaps)
        clipped = sum(gap.clipped or 0.0 for gap in judged) / max(len(judged), 1)
        cut = f", {clipped:.2%} of the inputs clipped" if clipped > self.policy.clip_limit else ""
        word = {
            "faithful": "is a sound quantization of",
            "drift": "loses more than quantization should of",
            "diverged": "does not say what",
        }[self.verdict.value]
        tail = " says" if self.verdict is Verdict.DIVERGED else ""
        decided = self._deciding()
        if decided is not None:
            word = "does not say what" if decided.counts else "may be no sound quantization of"
            tail = f"{tail}: {decided.what}"
        where = "your data" if judged[0].group == "data" else "the example inputs"
        return f"{self.candidate} {word} {self.subject}{tail}: {judging.level_words(level)} on {where}{cut}; {runtime}{self._thin()}"

    def _deciding(self) -> Finding | None:
        """The finding that alone keeps the verdict from FAITHFUL, or None where what was measured does."""
        findings = sorted(
            (f for f in self.findings if f.counts or f.doubts), key=lambda f: not f.counts
        )
        if (
            not findings
            or judging.judge(self.gaps, self.policy, notes=self.notes) is not Verdict.FAITHFUL
        ):
            return None
        return findings[0]

    def _facts(self) -> Sequence[str]:
        facts = []
        if self.location is not None:
            place = (
                f"{self.location.source.file}:{self.location.source.line}: `{self.location.source.text}`"
                if self.location.source
                else ""
            )
            facts.append(
                f"stage {self.location.stage.value}, node {', '.join(self.location.nodes[:3]) or 'unknown'} {place}".strip()
            )
        facts += [
            f"cause {'proven' if cause.proven else 'likely'}: {cause.code}: {cause.title}; {cause.evidence}"
            for cause in self.causes[:2]
        ]
        facts += [finding.what for finding in self.findings[:3]]
        bad = [
            gap
            for gap in self.gaps
            if judging.judge_gap(gap, self.policy) in (Verdict.DRIFT, Verdict.DIVERGED)
        ]
        if bad or self.quality() is None:  # where quality decides, no single case need differ
            facts.append(
                f"{len({g.case for g in bad})} of {len({g.case for g in self.gaps})} cases differ"
            )
        return facts

    def to_json(self, path: str | Path) -> None:
        """Write the proof as JSON; the schema is published in docs/."""
        self._write("json", path)

    def to_html(self, path: str | Path) -> None:
        """Write a report that opens offline."""
        self._write("html", path)

    def to_junit(self, path: str | Path) -> None:
        """Write JUnit XML for CI."""
        self._write("junit", path)

    def to_markdown(self, path: str | Path) -> None:
        """Write a summary for a pull request."""
        self._write("markdown", path)

    def to_sarif(self, path: str | Path) -> None:
        """Write SARIF for code scanning."""
        self._write("sarif", path)

    def write_repro(self, folder: str | Path) -> Path:
        """Write the smallest sub-model that shows the fault, with a script that needs numpy and onnxruntime alone; gives the script's path."""
        write: Any = importlib.import_module("onnxproof.diagnosis.repro.writing").write_repro
        return Path(write(self, self.scene, folder))

    def _write(self, writer: str, path: str | Path) -> None:
        write: Any = importlib.import_module(f"onnxproof.report.writers.{writer}").write
        write(self, path)


def _size(gap: Gap) -> str:
    if gap.lost:
        return f"{gap.lost} elements are NaN or infinite where the reference is finite"
    if gap.mismatches:
        return f"{gap.mismatches} of {gap.compared} integers differ"
    within = "passes" if gap.allowance <= 1 else "fails"
    if gap.bias is not None and gap.bias >= gap.noise_ratio / 2:
        return f"{gap.noise_ratio:.1f} times the rounding noise, and the graph itself, in float64, {gap.bias:.1f} times (max abs {gap.max_abs:.3g}; allclose {within})"
    return f"{gap.noise_ratio:,.0f} times the rounding noise (max abs {gap.max_abs:.3g}; allclose {within})"
