"""A bundle is written, travels, and is replayed: the same verdict for a right runtime, DIVERGED for one that is off."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import onnx.numpy_helper
import onnxruntime
import pytest
from support.bundles import linear_proof, members_of
from support.linear_files import BIAS, linear

import onnxproof
from onnxproof.bundle import manifest, schema
from onnxproof.bundle.manifest import BundleError
from onnxproof.cli import main
from onnxproof.options import BundleOptions
from onnxproof.report.writers import json as proofs
from onnxproof.results import Verdict
from onnxproof.testing import adds_noise, fake_backend, raising

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a faithful model, its proof and its bundle."""
    folder = tmp_path_factory.mktemp("bundle")
    proof = linear_proof(folder)
    assert proof.verdict is Verdict.FAITHFUL
    proof.to_bundle(folder / "model.proof")
    proof.to_bundle(folder / "again.proof")
    proof.to_bundle(folder / "whole.proof", BundleOptions(with_model=True))
    proof.to_json(folder / "proof.json")
    return folder


def test_the_same_proof_gives_the_same_bytes(home: Path) -> None:
    assert (home / "model.proof").read_bytes() == (home / "again.proof").read_bytes()


def test_a_right_runtime_is_faithful_and_one_that_is_off_is_not(home: Path) -> None:
    assert onnxproof.replay(home / "model.proof").verdict is Verdict.FAITHFUL
    with fake_backend("off", adds_noise(1e-2)):
        proof = onnxproof.replay(home / "model.proof", backends=("ort", "off"))
    assert proof.verdict is Verdict.DIVERGED
    assert {gap.backend for gap in proof.gaps if gap.noise_ratio > 12} == {"off"}
    assert proof.cross is not None and proof.cross.wrong == ("off",)
    assert proof.worst is not None and proof.worst.backend == "off"
    assert proof.replay.startswith("onnxproof replay ") and "--backend off" in proof.replay


def test_a_runtime_that_refuses_every_case_is_diverged(home: Path) -> None:
    with fake_backend("broken", raising()):
        proof = onnxproof.replay(home / "model.proof", backends=("broken",))
    assert proof.verdict is Verdict.DIVERGED
    assert {gap.status.value for gap in proof.gaps} == {"refused"}


def test_a_replay_measures_what_the_verification_measured(home: Path) -> None:
    before = {(gap.case, gap.output): gap for gap in proofs.read(home / "proof.json").gaps}
    for gap in onnxproof.replay(home / "model.proof").gaps:
        other = before[gap.case, gap.output]
        assert gap.compared == other.compared
        assert gap.rms == pytest.approx(other.rms)
        assert gap.max_abs == pytest.approx(other.max_abs)


def test_the_example_and_several_sizes_are_among_the_cases(home: Path) -> None:
    contents = manifest.loads(members_of(home / "model.proof")["manifest.json"], "")
    assert contents.cases[0].name == "example"
    assert len({tuple(case.sizes.items()) for case in contents.cases}) > 1
    assert all(output.noise.members > 1 for case in contents.cases for output in case.outputs)


def test_the_manifest_fits_its_published_schema(home: Path) -> None:
    published = json.loads((ROOT / "docs" / "bundle.schema.json").read_text())
    assert published == schema.make(), "run `make schema`"
    jsonschema.validate(json.loads(members_of(home / "model.proof")["manifest.json"]), published)


def test_a_bundle_keeps_to_its_size(home: Path, tmp_path: Path) -> None:
    proof = linear_proof(tmp_path)
    small = proof.to_bundle(tmp_path / "small.proof", BundleOptions(most_mb=0.2))
    assert small.stat().st_size <= 0.2 * (1 << 20) < (home / "model.proof").stat().st_size * 100
    assert onnxproof.replay(small).verdict is Verdict.FAITHFUL


def test_another_model_is_refused_unless_it_is_allowed(home: Path, tmp_path: Path) -> None:
    other = linear(tmp_path / "other.onnx", bias=BIAS + 0.5) or tmp_path / "other.onnx"
    with pytest.raises(BundleError, match="is not the file that the bundle was made for"):
        onnxproof.replay(home / "model.proof", model=other)
    proof = onnxproof.replay(home / "model.proof", model=other, allow_other_model=True)
    assert proof.verdict is Verdict.DIVERGED
    assert "other-model" in {finding.code for finding in proof.findings}


def test_a_bundle_may_bring_its_model(home: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.proof"
    alone.write_bytes((home / "whole.proof").read_bytes())
    assert onnxproof.replay(alone).verdict is Verdict.FAITHFUL
    bare = tmp_path / "bare.proof"
    bare.write_bytes((home / "model.proof").read_bytes())
    with pytest.raises(BundleError, match="does not bring its model"):
        onnxproof.replay(bare)


def test_a_proof_without_tensors_says_how_to_get_a_bundle(home: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="onnxproof bundle"):
        proofs.read(home / "proof.json").to_bundle(tmp_path / "x.proof")


def test_the_command_line_bundles_a_stored_proof_and_replays_it(
    home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / "cli.proof")
    assert main(["bundle", str(home / "proof.json"), "-o", target]) == 0
    assert Path(target).read_bytes() == (home / "model.proof").read_bytes()
    assert main(["bundle", str(home / "proof.json"), "-o", target, "--with-model"]) == 0
    assert main(["replay", target, "--json", str(tmp_path / "r.json")]) == 0
    assert "FAITHFUL" in capfd.readouterr().out
    assert proofs.read(tmp_path / "r.json").verdict is Verdict.FAITHFUL
    other = ["replay", target, "--model", str(home / "proof.json")]
    assert main(other) == 2
    with fake_backend("off", adds_noise(1e-2)):
        assert main(["replay", target, "--backend", "off"]) == 1
    assert main(["replay", target, "--case", "nothing"]) == 2
    assert "error[no-such-case]: the bundle has no case `nothing`" in capfd.readouterr().err


def test_the_bundle_is_judged_by_another_policy_where_one_is_given(home: Path) -> None:
    tight = onnxproof.Policy(noise_limit=1e-6, worst_limit=1e-6)
    assert onnxproof.replay(home / "model.proof", policy=tight).verdict is Verdict.DRIFT


def test_the_test_data_passes_onnx_s_own_loader_and_onnx_runtime(
    home: Path, tmp_path: Path
) -> None:
    members = members_of(home / "model.proof")
    contents = manifest.loads(members["manifest.json"], "")
    session = onnxruntime.InferenceSession(
        str(home / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    for case in contents.cases:
        fed = {}
        for name in sorted(members):
            if name.startswith(f"{case.test_data}/input_"):
                tensor = onnx.TensorProto.FromString(members[name])
                fed[tensor.name] = onnx.numpy_helper.to_array(tensor)
        expected = onnx.TensorProto.FromString(members[f"{case.test_data}/output_0.pb"])
        (output,) = session.run(None, fed)
        wanted = onnx.numpy_helper.to_array(expected)
        np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=case.atol[expected.name])


def run_script(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """`replay.py` of the bundle in Python's isolated mode."""
    return subprocess.run(
        [sys.executable, "-I", folder / "replay.py", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_script_in_the_bundle_judges_alike(home: Path, tmp_path: Path) -> None:
    for name, content in members_of(home / "model.proof").items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    right = run_script(tmp_path, home / "model.onnx", "--json", tmp_path / "own.json")
    assert right.returncode == 0, right.stdout + right.stderr
    assert "FAITHFUL" in right.stdout
    own = {(gap.case, gap.output): gap for gap in proofs.read(tmp_path / "own.json").gaps}
    for gap in onnxproof.replay(home / "model.proof").gaps:
        other = own[gap.case, gap.output]
        assert (gap.status, gap.domain, gap.compared) == (
            other.status,
            other.domain,
            other.compared,
        )
        assert gap.noise_ratio == pytest.approx(other.noise_ratio, rel=1e-9)
        assert gap.worst_ratio == pytest.approx(other.worst_ratio, rel=1e-9)
    assert main(["report", str(tmp_path / "own.json"), "-o", str(tmp_path / "r.md")]) == 0
    linear(tmp_path / "other.onnx", bias=BIAS + 0.5)
    refused = run_script(tmp_path, tmp_path / "other.onnx")
    assert refused.returncode == 2 and "is not the file" in refused.stderr
    wrong = run_script(tmp_path, tmp_path / "other.onnx", "--allow-other-model")
    assert wrong.returncode == 1 and "DIVERGED" in wrong.stdout
    (tmp_path / "text.onnx").write_text("no model")
    unread = run_script(tmp_path, tmp_path / "text.onnx", "--allow-other-model")
    assert unread.returncode == 2 and "does not load the model" in unread.stderr
    assert "Traceback" not in unread.stderr
    (tmp_path / "cases" / "000.safetensors").write_bytes(b"\0" * 100)
    broken = run_script(tmp_path, home / "model.onnx")
    assert broken.returncode == 2 and "was changed" in broken.stderr


def test_a_replay_never_imports_torch(home: Path) -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import onnxproof; print(onnxproof.replay(sys.argv[1]).verdict.value)"
    )
    told = subprocess.run(
        [sys.executable, "-c", script, home / "model.proof"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.stdout.strip() == "faithful", told.stderr
