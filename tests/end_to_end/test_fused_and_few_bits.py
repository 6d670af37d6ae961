"""Fused files and files of 4 bits: faults are caught, and named with node and cause; healthy ones pass."""

from pathlib import Path
from random import Random

import onnx
import pytest

import onnxproof
from bench.fused.block_kinds import BLOCKS
from bench.fused.kinds import FUSED
from bench.fused.subjects import sources
from bench.mutants.graph import Graph
from bench.mutants.samples import feed
from onnxproof.results import Verdict
from onnxproof.results.proof import Proof

BUDGET_S = 240.0
"""Ample: on a busy machine a trial that takes two seconds takes twenty."""


def _verify(name: str, folder: Path, kind: str = "", seed: int = 1) -> tuple[Proof, set[str]]:
    """The proof of a healthy file, or of one with a fault, and the guilty nodes."""
    built = sources()[name].build(folder)
    assert built.correct is not None
    model = onnx.load(built.correct)
    guilty: set[str] = set()
    path = folder / "verified.onnx"
    if kind:
        planted = (FUSED | BLOCKS)[kind](
            Graph(model, feed(model, built.example_inputs)), Random(seed)
        )
        assert planted is not None
        guilty = set(planted.guilty)
    onnx.save(model, path)
    proof = onnxproof.verify(
        built.model,
        path,
        built.example_inputs,
        dynamic_shapes=built.dynamic_shapes,
        budget_s=BUDGET_S,
        explain=bool(kind),
    )
    return proof, guilty


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        ("scale", "attribute", "`scale` is"),
        ("pairs", "attribute", "`interleaved` is 1 and should be 0"),
    ],
)
def test_a_fused_decoder(tmp_path: Path, kind: str, code: str, words: str) -> None:
    proof, guilty = _verify("llama_rotary", tmp_path, kind)
    assert proof.verdict is Verdict.DIVERGED
    assert proof.location is not None
    assert proof.location.nodes[0] in guilty
    first = proof.causes[0]
    assert (first.code, first.proven) == (code, True)
    assert words in first.evidence


def test_a_weight_of_few_bits_without_its_groups(tmp_path: Path) -> None:
    proof, guilty = _verify("mlp_groups", tmp_path, "groups-dropped")
    assert proof.verdict is Verdict.DIVERGED
    assert proof.location is not None
    assert proof.location.nodes[0] in guilty
    first = proof.causes[0]
    assert (first.code, first.proven) == ("weights", True)
    assert "`g_idx` is missing" in first.evidence


def test_what_few_bits_cost_is_told_and_passes(tmp_path: Path) -> None:
    proof, _ = _verify("mlp_symmetric", tmp_path)
    assert proof.verdict is Verdict.FAITHFUL
    (told,) = [finding for finding in proof.findings if finding.code == "few-bits"]
    assert "with its own weights rounded to as few bits" in told.what
