"""One verification of one changed file, in a process of its own, and what is said of it."""

import json
import multiprocessing
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import onnx

from bench.mutants.draw import Mutant
from bench.mutants.subjects import SubjectSource

PRELOADED = ["torch", "transformers", "onnxruntime", "onnxscript", "onnxproof.api"]
"""What every child needs: imported once by the process that they are forked from."""


@dataclass(slots=True, kw_only=True)
class Row:
    """What onnxproof says of one mutant or healthy twin."""

    seed: int
    index: int
    model: str
    kind: str
    what: str
    healthy: bool = False
    guilty: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    movement: float = 0.0
    verdict: str = "crash"
    notes: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    causes: list[dict[str, Any]] = field(default_factory=list)
    """Code, whether proven, evidence, error before and after."""
    seconds: float = 0.0
    why: str = ""

    @property
    def caught(self) -> bool:
        """Flagged, or noted in an odd domain."""
        return self.verdict in ("diverged", "drift", "error") or bool(self.notes)

    @property
    def rank(self) -> int | None:
        """The place of the first guilty node among those named, from 1."""
        for place, node in enumerate(self.nodes, start=1):
            if node in self.guilty:
                return place
        return None

    @property
    def cause_right(self) -> bool:
        """The first cause is true, proven or not."""
        return bool(self.causes) and self._true(self.causes[0])

    @property
    def proven_right(self) -> bool:
        """The first cause is proven and true."""
        return bool(self.causes) and self.causes[0]["proven"] and self._true(self.causes[0])

    @property
    def proven_wrong(self) -> bool:
        """Some cause is called proven that is not true."""
        return any(cause["proven"] and not self._true(cause) for cause in self.causes)

    def _true(self, cause: dict[str, Any]) -> bool:
        return cause["code"] in self.codes

    @property
    def wrong(self) -> str:
        """What is bad about this row, if anything."""
        if self.verdict == "not run":
            return ""
        if self.verdict in ("crash", "timeout"):
            return self.verdict.upper()
        if self.healthy:
            return "" if self.verdict == "faithful" else "ALARM"
        if not self.caught:
            return "MISSED"
        if self.proven_wrong:
            return "WRONG AND PROVEN"
        return ""


def row_of(mutant: Mutant, seed: int, index: int, *, healthy: bool) -> Row:
    """What is known before the verification."""
    mutation = mutant.mutation
    return Row(
        seed=seed,
        index=index,
        model=mutant.subject,
        kind=mutation.kind,
        what=mutation.what,
        healthy=healthy,
        guilty=list(mutation.guilty),
        codes=list(mutation.codes),
        movement=min(mutant.movement, 1e30),
    )


def verify(
    row: Row,
    model: onnx.ModelProto,
    source: SubjectSource,
    cache: Path,
    *,
    budget_s: float,
    limit: float,
) -> Row:
    """Verify a changed file in a child; one that crashes or hangs is a row, too."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        answer = Path(folder) / "row.json"
        onnx.save(model, path)
        child = context.Process(target=_child, args=(row, path, answer, (source, cache), budget_s))
        child.start()
        child.join(limit)
        if child.is_alive():
            child.kill()
            child.join()
            row.verdict = "timeout"
            return row
        if not answer.exists():
            row.why = f"the process ended with {child.exitcode}"
            return row
        return Row(**json.loads(answer.read_text()))


def _child(
    row: Row, path: Path, answer: Path, place: tuple[SubjectSource, Path], budget_s: float
) -> None:
    """Build the module and verify; only what was learned is written."""
    import torch

    import onnxproof

    torch.set_num_threads(1)
    source, cache = place
    built = source.build(cache / row.model)
    start = time.perf_counter()
    try:
        proof = onnxproof.verify(
            built.model,
            path,
            built.example_inputs,
            dynamic_shapes=built.dynamic_shapes,
            budget_s=budget_s,
        )
    except onnxproof.OnnxproofError as error:
        row.verdict, row.why = "error", str(error)[:300]
    else:
        _fill(row, proof)
    row.seconds = round(time.perf_counter() - start, 2)
    answer.write_text(json.dumps(asdict(row)))


def _fill(row: Row, proof: Any) -> None:
    row.verdict = proof.verdict.value
    row.notes = sorted({note.domain.value for note in proof.notes})
    if proof.location is not None:
        row.nodes = list(proof.location.nodes)
    row.causes = [
        {
            "code": cause.code,
            "proven": cause.proven,
            "evidence": cause.evidence,
            "before": cause.before,
            "after": cause.after,
        }
        for cause in proof.causes
    ]
