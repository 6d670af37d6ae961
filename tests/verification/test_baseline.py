"""The lock file: it sees what grew, says what changed, and never takes a fault for what is expected."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.linear_files import BIAS, linear, reference
from support.made_proofs import gap, large

from onnxproof.cli import main
from onnxproof.errors import UsageError
from onnxproof.options import Policy
from onnxproof.results import Domain, NodeGap, Profile, Status, Verdict
from onnxproof.results.proof import Proof
from onnxproof.verification import baseline


def proof(ratio: float = 1.2, *, node: float = 0.8, torch: str = "2.12", **other: object) -> Proof:
    gaps = (
        gap("a", "ordinary", "ort", 0.4),
        gap("b", "ordinary", "ort", ratio),
        gap("c", "nonfinite", "ort", 1e9, domain=Domain.NAN),
    )
    nodes = tuple(
        NodeGap(node=name, op_type="Gemm", ratio=value)
        for name, value in (("first", 0.5), ("second", node), ("third", node))
    )
    made = replace(
        large(2, ("ort",), 2),
        verdict=Verdict.FAITHFUL,
        gaps=gaps,
        location=None,
        causes=(),
        policy=Policy(),
        environment={"torch": torch, "time": "now"},
        hashes={"candidate": "aa"},
        profile=Profile(case="example", against="x", nodes=nodes),
    )
    return replace(made, **other)  # type: ignore[arg-type]


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    written = baseline.update(proof(), tmp_path / "lock.json")
    assert [finding.code for finding in written.findings] == ["baseline-written"]
    assert written.passed
    return tmp_path / "lock.json"


def test_the_file_has_one_line_an_output_and_a_node_and_no_time(lock: Path) -> None:
    text = lock.read_text()
    assert '\n    {"backend": "ort", "output": "y", "ratio": 1.2}\n' in text
    assert '\n    "second": 0.8,\n' in text
    assert "now" not in text
    assert baseline.read(lock) == baseline.of(proof())


def test_the_same_again_passes(lock: Path) -> None:
    assert baseline.check(proof(), lock).findings == ()


def test_growth_below_the_noise_does_not_count(lock: Path) -> None:
    assert baseline.check(proof(3.9, node=3.9), lock).passed


def test_an_output_that_grew_fails_and_what_changed_is_named(lock: Path) -> None:
    checked = baseline.check(proof(9.0, torch="2.13", hashes={"candidate": "bb"}), lock)
    assert not checked.passed
    assert checked.verdict is Verdict.FAITHFUL
    (finding,) = checked.findings
    assert (finding.code, finding.what) == (
        "baseline-grew",
        "output `y` on ort: 9.0 times the noise, 1.2 when the baseline was written",
    )
    assert (
        finding.help
        == "changed since: torch 2.12 -> 2.13; the candidate file. `--update-baseline` accepts it"
    )
    assert baseline.check(proof(9.0), lock, factor=8).passed
    assert baseline.check(proof(float("nan")), lock).findings[0].code == "baseline-grew"


def test_the_first_node_that_grew_is_named(lock: Path) -> None:
    (finding,) = baseline.check(proof(node=7.0), lock).findings
    assert finding.code == "baseline-node"
    assert (
        finding.what
        == "2 of 3 nodes are noisier than in the baseline; the first: `second` (0.8 then, 7.0 now), `third` (0.8 then, 7.0 now)"
    )
    assert finding.help.startswith("nothing of the environment changed, and the file is the same")


def test_what_is_not_compared_any_more_fails(lock: Path) -> None:
    gone = proof(
        gaps=(
            gap("a", "ordinary", "reference", 1.0),
            gap("a", "ordinary", "ort", 1.0, status=Status.SHAPE),
        )
    )
    assert [(finding.code, finding.fails) for finding in baseline.check(gone, lock).findings] == [
        ("baseline-lost", True),
        ("baseline-new", False),
    ]


def test_a_fault_never_becomes_a_baseline(tmp_path: Path) -> None:
    refused = baseline.update(proof(verdict=Verdict.DIVERGED), tmp_path / "lock.json")
    assert [finding.code for finding in refused.findings] == ["baseline-not-written"]
    assert not (tmp_path / "lock.json").exists()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "not-a-baseline"),
        ("[]", "not-a-baseline"),
        ('{"baseline": "9"}', "other-baseline"),
        ('{"baseline": "1"}', "not-a-baseline"),
    ],
)
def test_what_is_not_a_baseline_is_told(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "lock.json").write_text(text)
    with pytest.raises(UsageError, match=rf"error\[{code}\]"):
        baseline.read(tmp_path / "lock.json")


def test_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import numpy as np

    monkeypatch.chdir(tmp_path)
    reference(tmp_path)
    linear(tmp_path / "m.onnx")
    words = ["verify", "model.py:build", "m.onnx", "--budget", "30", "--baseline", "lock.json"]
    assert main(words) == 2
    assert "error[no-baseline]: there is no baseline `lock.json` yet" in capsys.readouterr().err
    assert main([*words, "--update-baseline"]) == 0
    assert main(words) == 0
    stored = json.loads((tmp_path / "lock.json").read_text())
    assert stored["outputs"][0]["backend"] == "ort"
    assert len(stored["nodes"]) == 1
    capsys.readouterr()
    linear(tmp_path / "m.onnx", bias=BIAS * np.float32(1 + 1e-6))
    assert main([*words, "--noise-limit", "1000", "--quiet"]) == 1
    said = capsys.readouterr().out
    assert "baseline-grew" in said
    assert "the candidate file" in said
    assert main(["verify", "model.py:build", "m.onnx", "--update-baseline"]) == 2
    assert "need `--baseline`" in capsys.readouterr().err
