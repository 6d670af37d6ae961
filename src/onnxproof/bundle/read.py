"""Open a bundle and believe nothing: every file is the one that the manifest lists, and the verdict is the one that the gaps give.

1. A zip of plain names and regular files, which unpacks to what it says (`system/zip_archive`).
2. Exactly the files that the manifest lists, each with its size and its hash.
3. The statement is the one that follows from the manifest, and the proof, judged again, has the verdict that both say.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from onnxproof.bundle import cases, manifest, rollouts, statement
from onnxproof.bundle.cases import StoredCase
from onnxproof.bundle.manifest import BundleError, Manifest, damaged
from onnxproof.errors import UsageError
from onnxproof.report.writers import json as proofs
from onnxproof.results import judging
from onnxproof.results.proof import Proof
from onnxproof.system.zip_archive import Archive
from onnxproof.verification.rollout.recorded import RecordedRollout

_MOST_MANIFEST = 64 << 20
"""Bytes of a manifest or a statement. Not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A checked bundle, open as long as its archive is."""

    path: Path
    archive: Archive
    manifest: Manifest
    proof: Proof
    """The proof that it was made from."""
    digest: str
    """SHA-256 of the manifest, which holds the hash of every other file."""

    def cases(self, only: Sequence[str] = ()) -> Iterator[StoredCase]:
        """The cases one by one, or those of these names."""
        for record in self.manifest.cases:
            if not only or record.name in only:
                content = self.archive.read(record.file)
                yield cases.from_members(record, content, self.manifest.signature, str(self.path))

    def rollouts(self, only: Sequence[str] = ()) -> Iterator[RecordedRollout]:
        """The rollouts one by one, or those of these names."""
        for record in self.manifest.rollouts:
            if not only or record.name in only:
                content = self.archive.read(record.file)
                yield rollouts.from_members(
                    record, content, self.manifest.signature, str(self.path)
                )

    def extract_model(self, folder: Path) -> Path:
        """Write the model that the bundle brings into a folder of ours; gives its path."""
        for file in self.manifest.model.files:
            target = folder / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as stream:
                for piece in self.archive.pieces(f"{manifest.MODEL_FOLDER}{file.name}"):
                    stream.write(piece)
        return folder / self.manifest.model.name


@contextmanager
def open_bundle(path: str | Path) -> Iterator[Bundle]:
    """The bundle, if it is one and nobody changed it.

    Raises:
        BundleError: `not-a-bundle`, `bundle-damaged`, `other-schema` or `archive-too-large`.
    """
    path = Path(path)
    with Archive(
        path, "not-a-bundle", error=BundleError, one_folder=False, gapless=True
    ) as archive:
        yield _checked(path, archive)


def _checked(path: Path, archive: Archive) -> Bundle:
    where = str(path)
    if manifest.MANIFEST not in archive.names:
        raise BundleError(
            "not-a-bundle",
            f"`{path.name}` is a zip without a `{manifest.MANIFEST}`",
            where=where,
            help="give what `onnxproof bundle` wrote",
        )
    content = _document(archive, manifest.MANIFEST, where)
    contents = manifest.loads(content, where)
    _check_files(archive, contents, where)
    proof = _proof(archive, contents, where)
    expected = statement.make(contents, content, proof)
    if _document(archive, manifest.STATEMENT, where) != expected:
        raise damaged("its statement is not the one of its manifest", where)
    if manifest.ENVELOPE in archive.names:
        _check_envelope(_document(archive, manifest.ENVELOPE, where), expected, where)
    digest = hashlib.sha256(content).hexdigest()
    return Bundle(path=path, archive=archive, manifest=contents, proof=proof, digest=digest)


def _check_envelope(envelope: bytes, signed: bytes, where: str) -> None:
    """The signed statement is this one; who signed it, `signing.check` says."""
    try:
        payload = base64.b64decode(json.loads(envelope)["payload"], validate=True)
    except (ValueError, TypeError, KeyError, RecursionError) as why:
        raise damaged("its signature can't be read", where) from why
    if payload != signed:
        raise BundleError(
            "wrong-signature",
            "its signature is that of another statement",
            where=where,
            help="get it again from who made it",
        )


def _document(archive: Archive, name: str, where: str) -> bytes:
    if name not in archive.names:
        raise damaged(f"it lacks `{name}`", where)
    if archive.size(name) > _MOST_MANIFEST:
        raise damaged(f"its `{name}` has {archive.size(name):,} bytes", where)
    return archive.read(name)


def _check_files(archive: Archive, contents: Manifest, where: str) -> None:
    """Step 2."""
    listed = {file.name: file for file in contents.files}
    present = set(archive.names) - set(manifest.UNLISTED)
    for name in sorted(present - listed.keys()):
        raise damaged(f"`{name}` is in it, and its manifest does not know it", where)
    for name in sorted(listed.keys() - present):
        raise damaged(f"it lacks `{name}`", where)
    for file in contents.files:
        if archive.size(file.name) != file.bytes:
            raise damaged(f"`{file.name}` has another size than its manifest says", where)
        digest = hashlib.sha256()
        for piece in archive.pieces(file.name):
            digest.update(piece)
        if digest.hexdigest() != file.sha256:
            raise damaged(f"`{file.name}` was changed", where)
    _check_model(contents, where)


def _check_model(contents: Manifest, where: str) -> None:
    """The model's files are those that the bundle brings, or it brings none."""
    listed = {file.name: file.sha256 for file in contents.files}
    brought = {name for name in listed if name.startswith(manifest.MODEL_FOLDER)}
    expected = {}
    if contents.model.included:
        expected = {
            f"{manifest.MODEL_FOLDER}{file.name}": file.sha256 for file in contents.model.files
        }
    same = all(listed.get(name) == digest for name, digest in expected.items())
    named = [file.name for file in contents.model.files]
    if brought != expected.keys() or not same or contents.model.name not in named:
        raise damaged("it brings other files than the model's", where)


def _proof(archive: Archive, contents: Manifest, where: str) -> Proof:
    """Step 3: the stored proof, judged again."""
    if manifest.PROOF not in archive.names:
        raise damaged(f"it lacks `{manifest.PROOF}`", where)
    try:
        proof = proofs.from_dict(json.loads(archive.read(manifest.PROOF)), where=where)
    except (UsageError, ValueError, RecursionError) as why:
        raise damaged(f"its proof can't be read: {why}", where) from why
    judged = judging.judge(proof.gaps, proof.policy, notes=proof.notes, findings=proof.findings)
    if not proof.error and judged is not proof.verdict:
        raise damaged(f"it says {proof.verdict.value}, and its gaps say {judged.value}", where)
    same = (
        contents.verdict is proof.verdict
        and contents.policy == proof.policy
        and contents.signature == proof.signature
        and contents.model.fingerprint == proof.hashes.get("candidate")
    )
    if not same:
        raise damaged("its manifest is not that of its proof", where)
    return proof
