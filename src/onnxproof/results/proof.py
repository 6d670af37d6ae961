"""The proof: everything that was measured, and the ways to hand it on."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from onnxproof.errors import VerdictError
from onnxproof.options import BundleOptions, Policy
from onnxproof.registry import Registry
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
    Part,
    Profile,
    Rollout,
    Share,
    Signature,
    Verdict,
    judging,
    sentences,
)
from onnxproof.results.blocks import BlockPoint, MatrixCost, TextPair

SCHEMA = "1"
JUDGED_AGAIN = Finding(
    code="judged-again",
    what="judged again under a stricter policy than it was measured with: a run under this policy would search and confirm more",
    help="verify again with these limits before you rely on it",
)
"""What a run does (which cases it confirms, where it searches) depends on the policy, so a stored proof is no stricter run."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
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
    matrices: tuple[MatrixCost, ...] = ()
    """Of a candidate with weights in blocks: bits and cost of each matrix."""
    block_front: tuple[BlockPoint, ...] = ()
    """Of one that was just quantized so: bytes, cost and latency of every graph that was built."""
    texts: tuple[TextPair, ...] = ()
    """Of a language model that was just quantized to weights in blocks: what it writes, beside what the float model writes."""
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
    group_seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What the cases of each group took on each backend, its share of the reference's passes included."""
    half: str = ""
    """The half precision whose own rounding is the noise here: the file was made for it, and the reference is wider."""
    rollouts: tuple[Rollout, ...] = ()
    """Models that feed themselves, run for many calls in their own loops; their gaps are among `gaps`."""
    parts: tuple[Part, ...] = ()
    """Of a folder: its files, each proven alone; their gaps are among `gaps`, under the file's name."""
    export: ExportRecord | None = None
    """How the file was made, when `export` made it."""
    origin: str = ""
    """The reference in the words of a command line; empty where it was handed over in Python."""
    witness: Case | None = field(default=None, repr=False, compare=False)
    """The case that shows the fault best; kept in memory for locating, not written to JSON."""
    scene: Any = field(default=None, repr=False, compare=False)
    """What locating worked on; kept in memory for a repro, not written to JSON."""
    located: Any = field(default=None, repr=False, compare=False)
    """What locating learned; kept in memory for a repro and for mending, not written to JSON."""
    recording: Any = field(default=None, repr=False, compare=False)
    """The most telling cases; kept in memory for a bundle, not written to JSON."""

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
        return self._verdict_passes

    @property
    def _verdict_passes(self) -> bool:
        if self.verdict is Verdict.DRIFT:
            return not self.policy.strict
        return self.verdict is Verdict.FAITHFUL

    def judged(self, policy: Policy) -> "Proof":
        """The same measurements under another policy; nothing is run, and a stricter policy is told so."""
        if self.error:
            return replace(self, policy=policy)
        verdict = judging.judge(self.gaps, policy, notes=self.notes, findings=self.findings)
        findings = tuple(f for f in self.findings if f.code != JUDGED_AGAIN.code)
        if policy.is_stricter_than(self.policy):
            findings = (*findings, JUDGED_AGAIN)
        return replace(self, policy=policy, verdict=verdict, findings=findings)

    def raise_for_verdict(self) -> None:
        """Raise `VerdictError`, with everything a CI log needs, unless the proof passed."""
        if self.passed:
            return
        code, what = f"verdict-{self.verdict.value}", self.sentence()
        failed = next((finding for finding in self.findings if finding.fails), None)
        if self._verdict_passes and failed is not None:
            code, what = failed.code, f"{failed.what}; {failed.help}"
        help = f"replay: {self.replay}" if self.replay else ""
        raise VerdictError(code, what, where=self.candidate, notes=sentences.facts(self), help=help)

    def sentence(self) -> str:
        """The verdict in one sentence."""
        return sentences.verdict_sentence(self)

    def summary(self) -> str:
        """The whole report as text: the verdict, the table, where and why, as the command line prints it.

        >>> print(proof.summary())      # doctest: +SKIP
        """
        return _TEXTS.load("text").dumps(self)

    def __repr__(self) -> str:
        return sentences.outline(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, a table with a chart, where and why."""
        return _TEXTS.load("notebook").dumps(self)

    def quality(self) -> float | None:
        """Of a quantized candidate: output SQNR in dB over the data it is judged by (the worst output and backend); None for others."""
        groups = judging.by_output(judging.asked(self.gaps))
        return min((judging.pooled_db(gaps) for gaps in groups), default=None)

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
        return Path(str(_WRITERS.load("repro").write(self, folder)))

    def to_bundle(self, path: str | Path, options: BundleOptions | None = None) -> Path:
        """Write the most telling cases with the reference's answers, so that `onnxproof.replay` can prove the file where there is no PyTorch; gives the path."""
        return _BUNDLES.load("write").write(self, Path(path), options or BundleOptions())

    def _write(self, writer: str, path: str | Path) -> None:
        _WRITERS.load(writer).write(self, path)


class Writer(Protocol):
    """What the file of a writer defines."""

    def write(self, proof: Proof, path: str | Path) -> object:
        """Write the proof to the path."""


class BundleWriter(Protocol):
    """What the writer of bundles defines: it lies above the reports, since a bundle holds some."""

    def write(self, proof: Proof, path: Path, options: BundleOptions) -> Path:
        """Write the bundle; gives its path."""


_BUNDLES: Registry[BundleWriter] = Registry("bundle", "onnxproof.bundle", BundleWriter)


class TextWriter(Protocol):
    """What the file of a writer defines whose text is asked for."""

    def dumps(self, proof: Proof) -> str:
        """The proof as text."""


_TEXTS: Registry[TextWriter] = Registry("writer", "onnxproof.report.writers", TextWriter)
_WRITERS: Registry[Writer] = Registry("writer", "onnxproof.report.writers", Writer)
