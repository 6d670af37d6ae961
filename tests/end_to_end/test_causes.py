"""Each cause with planted faults on more than one architecture: the right code, proven, and a remedy that was verified."""

import hashlib
from collections import Counter

import onnx
import pytest
from support import quantized_faults
from support.planted_faults import BUDGET_S, FAULTS, examine, exported, model, planted, told

from onnxproof import api
from onnxproof.diagnosis import causes
from onnxproof.results import Verdict

BUGS = {
    "image-resize-truncates": "engine: the stage is taken for export, so no kernel is suspected",
}


@pytest.mark.parametrize("name", planted(BUGS))
def test_the_right_cause_is_first_and_proven(name: str) -> None:
    proof = examine(name).proof
    assert proof.causes and proof.causes[0].code == FAULTS[name].cause and proof.causes[0].proven, (
        told(proof)
    )


@pytest.mark.parametrize("name", list(FAULTS))
def test_a_wrong_cause_is_never_proven(name: str) -> None:
    proof = examine(name).proof
    assert [
        cause.code for cause in proof.causes if cause.proven and cause.code != FAULTS[name].cause
    ] == [], told(proof)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.xfail(strict=True, reason=BUGS[n])) if n in BUGS else n
        for n in FAULTS
        if FAULTS[n].fixed
    ],
)
def test_the_remedy_was_verified(name: str) -> None:
    proof = examine(name).proof
    fix = proof.causes[0].fix if proof.causes else None
    assert fix is not None and fix.verdict is Verdict.FAITHFUL and fix.what, told(proof)


@pytest.mark.parametrize("name", list(FAULTS))
def test_an_offered_remedy_is_never_worse_than_drift(name: str) -> None:
    for cause in examine(name).proof.causes:
        assert cause.fix is None or cause.fix.verdict in (Verdict.FAITHFUL, Verdict.DRIFT)


@pytest.mark.parametrize(
    ("name", "exporter"),
    [
        ("sums", "dynamo"),
        ("flat", "dynamo"),
        ("peak", "dynamo"),
        ("normed", "dynamo"),
        ("lengths", "dynamo"),
        ("towers", "dynamo"),
        ("span", "dynamo"),
        ("hashed", "dynamo"),
        ("conv", "legacy"),
        ("mlp", "legacy"),
    ],
)
def test_no_cause_is_proven_on_a_healthy_twin(name: str, exporter: str) -> None:
    right = model(name)
    proof = api.verify(
        right.module,
        exported(name, exporter),
        right.example,
        dynamic_shapes=right.shapes,
        budget_s=BUDGET_S,
    )
    assert proof.verdict is Verdict.FAITHFUL, told(proof)
    odd = (
        {"nan-handling", "tie-order"} if proof.notes else set()
    )  # real differences in domains where runtimes differ by nature
    assert [cause.code for cause in proof.causes if cause.proven and cause.code not in odd] == [], (
        told(proof)
    )


def test_every_cause_has_planted_faults() -> None:
    counts = Counter(fault.cause for fault in (*FAULTS.values(), *quantized_faults.FAULTS.values()))
    elsewhere = {
        "cache": "test_loop_causes",
        "fused-operator": "test_fused_and_few_bits",
        "position": "test_loop_causes",
        "nondeterminism": "test_layouts",
        "preprocessing": "test_preprocessing",
        "quant-parameters": "test_quantized_parameters",
        "provider-fallback": "test_provider_fallback",
        "state": "test_state_cause",
        "overflow": "told as `precision` or `nan-handling`",
    }
    assert set(causes.codes()) - set(counts) == set(elsewhere)
    once = sorted(code for code, n in counts.items() if n < 2)
    assert once == ["missing-op", "mutation", "nan-handling", "output-order", "tie-order"]


@pytest.mark.parametrize("code", sorted(causes.codes()))
def test_every_page_tells_what_why_how_and_an_example(code: str) -> None:
    page = causes.page(code)
    for word in ("What it is:", "Why it happens:", "How to see it:", "How to fix it:", "Example:"):
        assert word in page


def test_the_ratios_before_and_after_are_told() -> None:
    cause = examine("conv-leaky-slope").proof.causes[0]
    assert cause.before > 1000 > 20 > cause.after


def test_the_file_of_the_user_is_left_alone() -> None:
    found = examine("conv-leaky-slope")
    assert found.proof.hashes["candidate"] == hashlib.sha256(found.path.read_bytes()).hexdigest()
    assert onnx.load(found.path).graph.node
