"""Bundles made once for several tests, and ways to change one."""

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.linear_files import linear

import onnxproof

Members = dict[str, bytes]
Change = Callable[[Members], None]


def linear_proof(folder: Path, **options: Any) -> onnxproof.Proof:
    """A faithful proof of one linear layer, against an ONNX file: torch is not needed."""
    linear(folder / "reference.onnx")
    linear(folder / "model.onnx")
    return onnxproof.diff(
        folder / "reference.onnx", folder / "model.onnx", budget_s=4.0, explain=False, **options
    )


def members_of(path: Path) -> Members:
    """What is in a bundle, by name."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_members(path: Path, members: Members) -> Path:
    """A zip of these members."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def changed(bundle: Path, target: Path, change: Change) -> Path:
    """A copy of the bundle after a change."""
    members = members_of(bundle)
    change(members)
    return write_members(target, members)


def edit_json(members: Members, name: str, edit: Callable[[Any], None]) -> None:
    """Change one JSON document, and its hash in the manifest: as one who knows the format would."""
    document = json.loads(members[name])
    edit(document)
    members[name] = json.dumps(document).encode()
    relist(members, name)


def relist(members: Members, name: str) -> None:
    """Put the hash and the size of a changed file into the manifest."""
    if name == "manifest.json":
        return
    manifest = json.loads(members["manifest.json"])
    for file in manifest["files"]:
        if file["name"] == name:
            file["sha256"] = hashlib.sha256(members[name]).hexdigest()
            file["bytes"] = len(members[name])
    members["manifest.json"] = json.dumps(manifest).encode()
