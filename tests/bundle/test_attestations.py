"""What a bundle attests is read by the field's own libraries: in-toto statements, CycloneDX, OpenSSF model signing."""

import json
from pathlib import Path

import pytest

ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")
verifying = pytest.importorskip("model_signing.verifying")

from cyclonedx.schema import SchemaVersion  # noqa: E402
from cyclonedx.validation.json import JsonStrictValidator  # noqa: E402
from google.protobuf import json_format  # noqa: E402
from in_toto_attestation.v1 import statement_pb2  # noqa: E402
from in_toto_attestation.v1.statement import Statement  # noqa: E402
from support.bundles import linear_proof, members_of  # noqa: E402
from test_signing import key_pair  # noqa: E402

from onnxproof.bundle.manifest import BundleError  # noqa: E402
from onnxproof.cli import main  # noqa: E402
from onnxproof.errors import UsageError  # noqa: E402
from onnxproof.options import BundleOptions  # noqa: E402
from onnxproof.results.proof import Proof  # noqa: E402


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory) -> Proof:
    return linear_proof(tmp_path_factory.mktemp("attested"))


def test_in_toto_reads_the_statement(proof: Proof, tmp_path: Path) -> None:
    members = members_of(proof.to_bundle(tmp_path / "model.proof"))
    parsed = json_format.Parse(members["statement.json"], statement_pb2.Statement())
    Statement.copy_from_pb(parsed).validate()
    assert parsed.predicate_type == "https://in-toto.io/attestation/test-result/v0.1"
    assert parsed.predicate["result"] == "PASSED"
    assert {subject.name for subject in parsed.subject} == {"model.onnx", "manifest.json"}


def test_cyclonedx_reads_the_bill_of_materials_with_the_figures(
    proof: Proof, tmp_path: Path
) -> None:
    text = members_of(proof.to_bundle(tmp_path / "model.proof"))["bom.json"].decode()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    component = json.loads(text)["metadata"]["component"]
    assert component["type"] == "machine-learning-model"
    assert component["hashes"][0]["content"] == proof.hashes["candidate"]
    metrics = component["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]
    worst = max(gap.noise_ratio for gap in proof.gaps if gap.domain is None)
    assert float(metrics[0]["value"]) == pytest.approx(worst, rel=1e-4)
    assert metrics[0]["type"] == "noise ratio" and "ort, output y" in metrics[0]["slice"]


def check(folder: Path, public: Path, signature: Path) -> None:
    """What `model_signing verify key --ignore_unsigned_files` does."""
    config = verifying.Config().use_elliptic_key_verifier(public_key=public)
    config.set_ignore_unsigned_files(True).verify(folder, signature)


def test_model_signing_covers_the_model_and_the_bundle(proof: Proof) -> None:
    folder = Path(proof.candidate).parent
    secret, public = key_pair(folder, "own", ec.generate_private_key(ec.SECP256R1()))
    _, other = key_pair(folder, "other", ec.generate_private_key(ec.SECP256R1()))
    bundle = proof.to_bundle(folder / "model.proof", BundleOptions(sign_model=secret))
    signature = folder / "model.proof.sig"
    check(folder, public, signature)
    with pytest.raises(ValueError):
        check(folder, other, signature)
    for path in (bundle, folder / "model.onnx"):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(ValueError, match="mismatch"):
            check(folder, public, signature)
        path.write_bytes(content)
    check(folder, public, signature)


def test_a_model_in_another_folder_and_another_kind_of_key_are_refused(
    proof: Proof, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    secret, public = key_pair(tmp_path, "own", ec.generate_private_key(ec.SECP256R1()))
    with pytest.raises(BundleError, match="one signature covers one folder"):
        proof.to_bundle(tmp_path / "away.proof", BundleOptions(sign_model=secret))
    proof.to_bundle(tmp_path / "whole.proof", BundleOptions(sign_model=secret, with_model=True))
    check(tmp_path, public, tmp_path / "whole.proof.sig")
    (tmp_path / "no.pem").write_text("hello")
    with pytest.raises(UsageError, match="can't sign models"):
        options = BundleOptions(sign_model=tmp_path / "no.pem", with_model=True)
        proof.to_bundle(tmp_path / "bad.proof", options)
    assert not (tmp_path / "bad.proof.sig").exists()
    assert main(["bundle", "none.json", "-o", str(tmp_path / "x"), "--sign-model", "k.pem"]) == 2
