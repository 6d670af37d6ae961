"""One sample: exported by torch, verified by onnxproof, told as a row."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import onnx

from bench.corpus import export
from bench.operators.samples import Sample

BUDGET_S = 10.0
"""Seconds of one verification. Export and verification of a sample took 1.6 s of processor time in the mean of 457, and 3.1 s at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of one sample."""

    operator: str
    sample: int
    about: str = ""
    verdict: str = "crash"
    """A verdict of onnxproof; or `skipped` (no sample, or no export), `crash`, `hang`, `failed` (the bench itself)."""
    ratio: float = 0.0
    case: str = ""
    """The case that is farthest beyond the limits."""
    node: str = ""
    causes: list[tuple[str, bool]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    why: str = ""

    @property
    def key(self) -> tuple[str, int]:
        """What it is a row of."""
        return self.operator, self.sample

    def line(self) -> str:
        """The row as it is printed."""
        causes = " ".join(f"{code}{'!' * proven}" for code, proven in self.causes[:3])
        return (
            f"{self.operator:40s} {self.sample:3d} {self.verdict:9s} {self.ratio:10.3g} "
            f"{self.node[:40]:40s} {causes:30s} {self.seconds:5.1f}s {self.case} {self.why[:120]}"
        )

    def dumps(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))


def run(sample: Sample, seed: int, folder: Path) -> Row:
    """Export and verify; what fails in torch's exporter is skipped with its reason."""
    path = folder / "model.onnx"
    try:
        export(sample.module, sample.inputs, path)
    except Exception as why:  # torch raises classes of its own, and of every operator
        return _row(sample, verdict="skipped", why=_root(why))
    return verify(sample, seed, path)


def verify(sample: Sample, seed: int, path: Path) -> Row:
    """The proof of a file as a row."""
    import onnxproof
    from onnxproof.results import judging

    try:
        proof = onnxproof.verify(sample.module, path, sample.inputs, budget_s=BUDGET_S, seed=seed)
    except onnxproof.OnnxproofError as why:
        return _row(sample, verdict="error", why=f"{why.code}: {why.what}")
    row = {
        "verdict": proof.verdict.value,
        "causes": [(cause.code, cause.proven) for cause in proof.causes],
        "notes": sorted({note.domain.value for note in proof.notes}),
        "findings": sorted({finding.code for finding in proof.findings}),
        "why": "" if proof.verdict.value == "faithful" else proof.sentence(),
    }
    if proof.location is not None and proof.location.nodes:
        row["node"] = _with_type(path, proof.location.nodes[0])
    counted = [gap for gap in proof.gaps if gap.domain is None]
    if counted:
        worst = max(counted, key=lambda gap: judging.severity(gap, proof.policy))
        row |= {"ratio": worst.noise_ratio, "case": worst.case}
    return _row(sample, **row)


def _row(sample: Sample, **values: object) -> Row:
    return Row(
        operator=sample.operator,
        sample=sample.number,
        about=sample.about,
        **values,  # type: ignore[arg-type]
    )


def _with_type(path: Path, name: str) -> str:
    """A node's operator before its name."""
    graph = onnx.load(path, load_external_data=False).graph
    kind = next((node.op_type for node in graph.node if node.name == name), "?")
    return f"{kind} {name}"


def _root(why: BaseException) -> str:
    """The first line of the innermost reason."""
    while why.__cause__ is not None:
        why = why.__cause__
    lines = str(why).strip().splitlines() or [""]
    return f"{type(why).__name__}: {lines[0]}"[:300]
