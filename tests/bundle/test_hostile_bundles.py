"""Bundles that somebody changed, or made to do harm: each is refused with words, exit code 2, and nothing is written."""

import io
import json
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.bundles import (
    Members,
    changed,
    edit_json,
    linear_proof,
    members_of,
    relist,
    write_members,
)

from onnxproof.bundle import manifest, read
from onnxproof.bundle.manifest import BundleError
from onnxproof.cli import main
from onnxproof.results import Verdict

CASE = "cases/000.safetensors"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    return linear_proof(folder).to_bundle(folder / "model.proof")


def flip(members: Members) -> None:
    members[CASE] = members[CASE][:-1] + bytes([members[CASE][-1] ^ 1])


def verdict_of_the_manifest(members: Members) -> None:
    edit_json(members, "manifest.json", lambda document: document.update(verdict="drift"))


def verdict_of_the_proof(members: Members) -> None:
    edit_json(members, "proof.json", lambda document: document.update(verdict="drift"))
    verdict_of_the_manifest(members)


def verdict_of_the_statement(members: Members) -> None:
    edit_json(
        members,
        "statement.json",
        lambda document: document["predicate"].update(result="WARNED"),
    )


def looser_policy(members: Members) -> None:
    edit_json(members, "manifest.json", lambda document: document["policy"].update(noise_limit=1e9))


def larger_noise(members: Members) -> None:
    def edit(document: dict) -> None:  # type: ignore[type-arg]
        document["cases"][0]["outputs"][0]["noise"]["rms"] = 1e9

    edit_json(members, "manifest.json", edit)


def missing_file(members: Members) -> None:
    del members["test_data_set_0/input_0.pb"]


def additional_file(members: Members) -> None:
    members["cases/999.safetensors"] = b"x"


def listed_pickle(members: Members) -> None:
    content = pickle.dumps({"a": 1})
    members["cases/000.pkl"] = content

    def edit(document: dict) -> None:  # type: ignore[type-arg]
        document["files"].append({"name": "cases/000.pkl", "sha256": "", "bytes": len(content)})

    edit_json(members, "manifest.json", edit)
    relist(members, "cases/000.pkl")


def pickle_as_tensors(members: Members) -> None:
    members[CASE] = pickle.dumps({"input_0": [1.0]})
    relist(members, CASE)


def parent_folder(members: Members) -> None:
    members["../outside.txt"] = b"out"


def absolute_name(members: Members) -> None:
    members["/tmp/onnxproof-outside.txt"] = b"out"


def backslashes(members: Members) -> None:
    members["..\\outside.txt"] = b"out"


def huge_shape(members: Members) -> None:
    """A header that says 100 GB."""
    about = {"dtype": "F32", "shape": [25_000_000_000], "data_offsets": [0, 100_000_000_000]}
    header = json.dumps({"input_0": about}).encode()
    members[CASE] = struct.pack("<Q", len(header)) + header + b"\0" * 64
    relist(members, CASE)


def huge_header(members: Members) -> None:
    members[CASE] = struct.pack("<Q", 1 << 62) + b"{}"
    relist(members, CASE)


def other_schema(members: Members) -> None:
    edit_json(members, "manifest.json", lambda document: document.update(schema="99"))


def other_tool(members: Members) -> None:
    edit_json(members, "manifest.json", lambda document: document.update(tool="other"))


def no_manifest(members: Members) -> None:
    del members["manifest.json"]


def deep_manifest(members: Members) -> None:
    members["manifest.json"] = b"[" * 100_000


def damaged_manifest(members: Members) -> None:
    edit_json(members, "manifest.json", lambda document: document.update(cases={"a": 1}))


def other_shapes(members: Members) -> None:
    """The tensors of another case under this one's name: every hash is right, and the shapes are not."""
    members[CASE] = b"\x02\0\0\0\0\0\0\0{}"
    relist(members, CASE)


REFUSED: dict[Callable[[Members], None], str] = {
    flip: "bundle-damaged]: `cases/000.safetensors` was changed",
    verdict_of_the_manifest: "bundle-damaged]: its manifest is not that of its proof",
    verdict_of_the_proof: "bundle-damaged]: it says drift, and its gaps say faithful",
    verdict_of_the_statement: "bundle-damaged]: its statement is not the one of its manifest",
    looser_policy: "bundle-damaged]: its manifest is not that of its proof",
    larger_noise: "bundle-damaged]: its statement is not the one of its manifest",
    missing_file: "bundle-damaged]: it lacks `test_data_set_0/input_0.pb`",
    additional_file: "bundle-damaged]: `cases/999.safetensors` is in it",
    listed_pickle: "bundle-damaged]: `cases/000.pkl` has no place in a bundle",
    pickle_as_tensors: "bundle-damaged]: its statement is not the one of its manifest",
    parent_folder: "archive-refused]",
    absolute_name: "archive-refused]",
    backslashes: "archive-refused]",
    huge_shape: "bundle-damaged]",
    huge_header: "bundle-damaged]",
    other_schema: "other-schema]: this bundle has schema 99, and this onnxproof reads 1",
    other_tool: "not-a-bundle]: this zip was not written by onnxproof",
    no_manifest: "not-a-bundle]",
    deep_manifest: "bundle-damaged]: its manifest is not JSON",
    damaged_manifest: "bundle-damaged]: its manifest is damaged",
    other_shapes: "bundle-damaged]",
}


@pytest.mark.parametrize("change", REFUSED, ids=lambda change: change.__name__)
def test_a_changed_bundle_is_refused(
    bundle: Path,
    tmp_path: Path,
    change: Callable[[Members], None],
    capfd: pytest.CaptureFixture[str],
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    path = changed(bundle, inside / "changed.proof", change)
    assert main(["replay", str(path), "--model", str(bundle.parent / "model.onnx")]) == 2
    assert f"error[{REFUSED[change]}" in capfd.readouterr().err
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["changed.proof", "inside"]


@pytest.mark.parametrize("change", [pickle_as_tensors, huge_shape, huge_header, other_shapes])
def test_tensors_are_checked_though_every_hash_is_right(
    bundle: Path, tmp_path: Path, change: Callable[[Members], None]
) -> None:
    """The statement follows from the manifest, so whoever forges both is stopped by what the tensors say."""
    path = forged(bundle, tmp_path / "forged.proof", change)
    with read.open_bundle(path) as opened, pytest.raises(BundleError, match="tensor"):
        list(opened.cases())


def forged(bundle: Path, target: Path, change: Callable[[Members], None]) -> Path:
    """A bundle whose hashes and statement were all made anew after a change."""
    from onnxproof.bundle import statement
    from onnxproof.report.writers import json as proofs

    members = members_of(bundle)
    change(members)
    contents = manifest.loads(members["manifest.json"], "")
    proof = proofs.from_dict(json.loads(members["proof.json"]))
    members["statement.json"] = statement.make(contents, members["manifest.json"], proof)
    return write_members(target, members)


def refuse(path: Path) -> str:
    with pytest.raises(BundleError) as told, read.open_bundle(path):
        pass
    return told.value.code


def test_a_truncated_file_is_refused(bundle: Path, tmp_path: Path) -> None:
    content = bundle.read_bytes()
    for length in (0, 10, len(content) // 2, len(content) - 30):
        (tmp_path / "cut.proof").write_bytes(content[:length])
        assert refuse(tmp_path / "cut.proof") == "not-a-bundle"


def test_what_is_no_zip_and_what_is_no_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.proof").write_text("hello")
    assert refuse(tmp_path / "text.proof") == "not-a-bundle"
    assert refuse(tmp_path) == "not-a-file"
    assert refuse(tmp_path / "none.proof") == "no-such-file"


def test_a_link_and_a_device_inside_are_refused(bundle: Path, tmp_path: Path) -> None:
    for kind in (0o120777, 0o020666):
        path = tmp_path / "link.proof"
        path.write_bytes(bundle.read_bytes())
        entry = zipfile.ZipInfo("model/model.onnx")
        entry.create_system = 3
        entry.external_attr = kind << 16
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(entry, "/etc/passwd")
        assert refuse(path) == "archive-refused"


def test_what_unpacks_to_more_than_it_says_is_refused(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "bomb.proof"
    members = members_of(bundle)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("cases/998.safetensors", b"\0" * (64 << 20))
    assert refuse(path) == "archive-too-large"


MEASURED = """
import re, sys
from onnxproof.cli import main
code = main(["replay", *sys.argv[1:]])
print(code, int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024)
"""
"""The high-water mark of the process itself: `ru_maxrss` begins with that of the process which started it."""


def peak_mb(path: Path, model: Path, *, code: int) -> int:
    """The largest memory of a process that replays a bundle, which must end with this code."""
    words = [sys.executable, "-c", MEASURED, str(path), "--model", str(model)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    ended, peak = done.stdout.splitlines()[-1].split()
    assert int(ended) == code
    return int(peak)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_refusing_takes_no_more_memory_than_replaying(bundle: Path, tmp_path: Path) -> None:
    """Shapes of 100 GB, headers without end, a gigabyte of zeros in a megabyte."""
    model = bundle.parent / "model.onnx"
    healthy = peak_mb(bundle, model, code=0)
    bomb = tmp_path / "bomb.proof"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members_of(bundle).items():
            archive.writestr(name, content)
        with archive.open("cases/998.safetensors", "w") as member:
            for _ in range(1024):
                member.write(bytes(1 << 20))
    hostile = [bomb]
    for change in (huge_shape, huge_header, deep_manifest):
        hostile.append(changed(bundle, tmp_path / f"{change.__name__}.proof", change))
    hostile.append(forged(bundle, tmp_path / "forged.proof", huge_shape))
    peaks = {path.name: peak_mb(path, model, code=2) for path in hostile}
    assert max(peaks.values()) <= healthy, (peaks, healthy)


def test_a_name_twice_is_refused(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "twice.proof"
    path.write_bytes(bundle.read_bytes())
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("manifest.json", "{}")
    assert refuse(path) == "archive-refused"


def test_bytes_that_belong_to_no_member_are_refused(bundle: Path, tmp_path: Path) -> None:
    content, path = bundle.read_bytes(), tmp_path / "loose.proof"
    ends = (b"#!/bin/sh\n" + content, content + b"more", content[:-2] + b"\x04\x00more")
    with zipfile.ZipFile(bundle) as archive:
        directory = archive.start_dir
    between = content[:directory] + b"hidden" + content[directory:]
    offset = struct.unpack_from("<I", content, len(content) - 6)[0]
    between = between[:-6] + struct.pack("<I", offset + 6) + between[-2:]
    for changed_bytes in (*ends, between):
        path.write_bytes(changed_bytes)
        assert refuse(path) == "not-a-bundle"


def test_a_bundle_that_another_tool_packed_again_is_the_same(bundle: Path, tmp_path: Path) -> None:
    with read.open_bundle(write_members(tmp_path / "again.proof", members_of(bundle))) as again:
        assert again.manifest.verdict is Verdict.FAITHFUL
    with (tmp_path / "streamed.proof").open("wb") as file, zipfile.ZipFile(Pipe(file), "w") as zip:
        for name, content in members_of(bundle).items():
            zip.writestr(name, content)
    with read.open_bundle(tmp_path / "streamed.proof") as streamed:
        assert streamed.manifest.verdict is Verdict.FAITHFUL


class Pipe(io.RawIOBase):
    """A stream that can't go back: sizes come behind the members."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        return int(self._file.write(content))
