"""OpenSSF model signing of a bundle together with its model, by the package `model-signing` and a key on this machine: nothing is sent anywhere.

`model_signing verify key FOLDER --signature model.proof.sig --public_key pub.pem --ignore_unsigned_files` checks it.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnxproof.bundle.manifest import BundleError
from onnxproof.errors import UsageError
from onnxproof.system.user_files import require_regular
from onnxproof.system.writing import replace_file

_MOST_KEY = 1 << 16
"""Bytes of a key."""


def sign(bundle: Path, model: Path, files: Sequence[str], key: Path) -> Path:
    """Sign the bundle and these files of the model; gives the path of the signature, `model.proof.sig`."""
    signing, hashing = _libraries()
    require_regular(key, UsageError, most=_MOST_KEY, what="key")
    folder = bundle.resolve().parent
    signed = [bundle.resolve(), *(model.resolve().parent / name for name in files)]
    if not all(path.is_relative_to(folder) for path in signed):
        raise BundleError(
            "model-elsewhere",
            f"`{model.name}` is not in the folder of the bundle, and one signature covers one folder",
            where=str(bundle),
            help="write the bundle beside the model, or put the model into it with `--with-model`",
        )
    try:
        config = signing.Config().use_elliptic_key_signer(private_key=key)
    except (ValueError, TypeError) as why:
        raise UsageError(
            "bad-key",
            f"`{key.name}` can't sign models",
            where=str(key),
            notes=[str(why)[:200]],
            help="give a private key in PEM on a NIST curve (P-256, P-384 or P-521) without a password",
        ) from why
    target = bundle.with_name(f"{bundle.name}.sig")
    config.set_hashing_config(_Only(hashing.Config(), signed))
    with replace_file(target, what="the signature") as draft:
        config.sign(folder, draft)
    return target


class _Only:
    """Hashes these files of a folder, whatever else is in it."""

    def __init__(self, config: Any, files: Sequence[Path]) -> None:
        self._config, self._files = config, list(files)

    def hash(self, folder: Path) -> Any:
        """The manifest of the files, as the library wants it."""
        return self._config.hash(folder, files_to_hash=self._files)


def _libraries() -> tuple[Any, Any]:
    try:
        signing = importlib.import_module("model_signing.signing")
        hashing = importlib.import_module("model_signing.hashing")
    except ImportError as why:
        raise UsageError(
            "signing-missing",
            f"model signing needs a package that isn't installed: {why.name}",
            help="pip install 'onnxproof[model-signing]'",
        ) from why
    return signing, hashing
