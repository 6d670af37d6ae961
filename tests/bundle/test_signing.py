"""A bundle that was signed is believed by its key alone; the envelope is read by the field's own library."""

import json
from pathlib import Path

import pytest

pytest.importorskip("securesystemslib")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")
ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")

from support.bundles import changed, linear_proof, members_of  # noqa: E402

import onnxproof  # noqa: E402
from onnxproof.bundle.manifest import BundleError  # noqa: E402
from onnxproof.cli import main  # noqa: E402
from onnxproof.errors import UsageError  # noqa: E402
from onnxproof.options import BundleOptions  # noqa: E402
from onnxproof.results import Verdict  # noqa: E402


def key_pair(folder: Path, name: str, private: object) -> tuple[Path, Path]:
    """Two PEM files, as openssl would write them."""
    secret, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    form = serialization.PrivateFormat.PKCS8
    pem = serialization.Encoding.PEM
    secret.write_bytes(private.private_bytes(pem, form, serialization.NoEncryption()))  # type: ignore[attr-defined]
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(private.public_key().public_bytes(pem, spki))  # type: ignore[attr-defined]
    return secret, public


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa"])
def test_the_key_that_signed_is_believed_and_no_other(tmp_path: Path, kind: str) -> None:
    made = {
        "ed25519": ed25519.Ed25519PrivateKey.generate,
        "ecdsa": lambda: ec.generate_private_key(ec.SECP256R1()),
    }[kind]
    secret, public = key_pair(tmp_path, "own", made())
    _, stranger = key_pair(tmp_path, "stranger", made())
    proof = linear_proof(tmp_path)
    bundle = proof.to_bundle(tmp_path / "model.proof", BundleOptions(sign=secret))
    assert onnxproof.replay(bundle, verify=public).verdict is Verdict.FAITHFUL
    with pytest.raises(BundleError, match="was not signed by this key"):
        onnxproof.replay(bundle, verify=stranger)
    with pytest.raises(UsageError, match="is no public key"):
        onnxproof.replay(bundle, verify=tmp_path / "model.onnx")
    unsigned = proof.to_bundle(tmp_path / "unsigned.proof")
    with pytest.raises(BundleError, match="is not signed"):
        onnxproof.replay(unsigned, verify=public)


def test_a_signature_of_another_statement_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    secret, public = key_pair(tmp_path, "own", ed25519.Ed25519PrivateKey.generate())
    options = BundleOptions(sign=secret)
    proof = linear_proof(tmp_path)
    bundle = proof.to_bundle(tmp_path / "model.proof", options)
    whole = BundleOptions(sign=secret, with_model=True)
    other = proof.to_bundle(tmp_path / "other.proof", whole)
    envelope = members_of(other)["statement.dsse.json"]
    mixed = changed(
        bundle,
        tmp_path / "mixed.proof",
        lambda members: members.update({"statement.dsse.json": envelope}),
    )
    assert main(["replay", str(mixed), "--verify", str(public)]) == 2
    assert "error[wrong-signature]" in capfd.readouterr().err
    assert main(["replay", str(mixed)]) == 2  # known without a key, too
    assert "its signature is that of another statement" in capfd.readouterr().err
    torn = changed(
        bundle,
        tmp_path / "torn.proof",
        lambda members: members.update({"statement.dsse.json": b"{}"}),
    )
    assert main(["replay", str(torn)]) == 2
    assert "its signature can't be read" in capfd.readouterr().err
    assert main(["replay", str(bundle), "--verify", str(public)]) == 0


def test_the_statement_is_an_in_toto_test_result(tmp_path: Path) -> None:
    bundle = linear_proof(tmp_path).to_bundle(tmp_path / "model.proof")
    statement = json.loads(members_of(bundle)["statement.json"])
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert [subject["name"] for subject in statement["subject"]] == ["model.onnx", "manifest.json"]
    assert statement["predicate"]["result"] == "PASSED"
    assert statement["predicate"]["passedTests"] == ["ort: faithful"]
