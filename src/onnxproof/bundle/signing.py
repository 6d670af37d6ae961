"""Sign the statement of a bundle, and check who signed it: a DSSE envelope by securesystemslib, with a key in PEM (Ed25519, ECDSA or RSA).

The envelope holds the statement itself, the statement the manifest's hash, and the manifest the hash of every other file.
"""

import importlib
import json
from pathlib import Path
from typing import Any

from onnxproof.bundle.manifest import ENVELOPE, STATEMENT, BundleError
from onnxproof.bundle.read import Bundle
from onnxproof.errors import UsageError
from onnxproof.system.user_files import require_regular

PAYLOAD_TYPE = "application/vnd.in-toto+json"
_MOST_KEY = 1 << 16
"""Bytes of a key: RSA with 16,384 bits takes 13 KB."""


def sign(statement: bytes, key: Path) -> bytes:
    """The envelope of the statement, signed by the private key in this file."""
    dsse, signer, serialization = _libraries()
    content = _key_file(key)
    try:
        private = serialization.load_pem_private_key(content, password=None)
        signing = signer.CryptoSigner(private)
    except (ValueError, TypeError) as why:
        raise _bad_key(key, why, "private") from why
    envelope = dsse.Envelope(statement, PAYLOAD_TYPE, {})
    envelope.sign(signing)
    return (json.dumps(envelope.to_dict(), indent=2, sort_keys=True) + "\n").encode()


def check(bundle: Bundle, key: Path) -> None:
    """Nothing, if the public key in this file signed the statement of the bundle.

    Raises:
        BundleError: `not-signed` or `wrong-signature`.
    """
    dsse, signer, serialization = _libraries()
    if ENVELOPE not in bundle.archive.names:
        raise BundleError(
            "not-signed",
            f"`{bundle.path.name}` is not signed",
            where=str(bundle.path),
            help="`onnxproof bundle --sign key.pem` signs one",
        )
    content = _key_file(key)
    try:
        public = signer.SSlibKey.from_crypto(serialization.load_pem_public_key(content))
    except (ValueError, TypeError) as why:
        raise _bad_key(key, why, "public") from why
    if not _is_signed(bundle, public, dsse):
        raise BundleError(
            "wrong-signature",
            f"`{bundle.path.name}` was not signed by this key, or was changed since",
            where=str(bundle.path),
            notes=[f"the key is `{key}`"],
            help="get it again from who made it",
        )


def _is_signed(bundle: Bundle, public: Any, dsse: Any) -> bool:
    """Whether the envelope holds this very statement, signed by this key."""
    statement = bundle.archive.read(STATEMENT)
    try:
        envelope = dsse.Envelope.from_dict(json.loads(bundle.archive.read(ENVELOPE)))
        envelope.verify([public], 1)
    except (
        Exception
    ):  # a damaged envelope raises half a dozen classes, and none of them is a signature
        return False
    return bool(envelope.payload == statement and envelope.payload_type == PAYLOAD_TYPE)


def _key_file(path: Path) -> bytes:
    return require_regular(path, UsageError, most=_MOST_KEY, what="key").read_bytes()


def _bad_key(path: Path, why: Exception, kind: str) -> UsageError:
    return UsageError(
        "bad-key",
        f"`{path.name}` is no {kind} key that can be used",
        where=str(path),
        notes=[str(why)[:200]],
        help="give a key in PEM without a password: Ed25519, ECDSA or RSA",
    )


def _libraries() -> tuple[Any, Any, Any]:
    """securesystemslib's envelopes and signers, and the reader of PEM files."""
    try:
        serialization = importlib.import_module("cryptography.hazmat.primitives.serialization")
        dsse = importlib.import_module("securesystemslib.dsse")
        signer = importlib.import_module("securesystemslib.signer")
    except ImportError as why:
        raise UsageError(
            "signing-missing",
            f"signatures need a package that isn't installed: {why.name}",
            help="pip install 'onnxproof[signing]'",
        ) from why
    return dsse, signer, serialization
