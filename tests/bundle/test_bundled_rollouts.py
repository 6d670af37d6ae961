"""A model in a loop: its bundle holds short rollouts, and every way to replay it rolls them in the target's own loop."""

import json
import struct
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from support.bundles import members_of
from support.looping_models import SlotBehind, static_decoder, with_weights_of

import onnxproof
from onnxproof.bundle import manifest, rollouts
from onnxproof.bundle.manifest import BundleError
from onnxproof.bundle.read import open_bundle
from onnxproof.results import Verdict


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a right decoder, a wrong one and the bundle of the right one."""
    folder = tmp_path_factory.mktemp("loop")
    looping = static_decoder()
    looping.export(folder / "model.onnx")
    looping.export(folder / "wrong.onnx", with_weights_of(looping.module, SlotBehind))
    proof = onnxproof.verify(
        looping.module,
        folder / "model.onnx",
        looping.example,
        only=("example", "roll:b2:1x8"),
        explain=False,
    )
    assert proof.verdict is Verdict.FAITHFUL and proof.rollouts
    proof.to_bundle(folder / "model.proof")
    return folder


def test_the_own_loop_of_a_right_file_is_faithful_and_of_a_wrong_one_is_not(home: Path) -> None:
    proof = onnxproof.replay(home / "model.proof")
    assert proof.verdict is Verdict.FAITHFUL
    assert proof.rollouts and all(rollout.first_bad_step is None for rollout in proof.rollouts)
    assert all(rollout.steps >= 2 for rollout in proof.rollouts)
    name = proof.rollouts[0].schedule
    wrong = onnxproof.replay(
        home / "model.proof", model=home / "wrong.onnx", allow_other_model=True, only=(name,)
    )
    assert wrong.verdict is Verdict.DIVERGED
    assert [rollout.first_bad_step for rollout in wrong.rollouts] == [1]


def test_the_script_rolls_them_too(home: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(home / "model.proof") as archive:
        archive.extractall(tmp_path)
    words = [sys.executable, "-I", str(tmp_path / "replay.py"), "--json", str(tmp_path / "r.json")]
    right = subprocess.run(
        [*words, str(home / "model.onnx")], capture_output=True, text=True, check=False
    )
    assert right.returncode == 0 and "rollouts" in right.stdout, right.stdout + right.stderr
    told = json.loads((tmp_path / "r.json").read_text())["rollouts"]
    assert told and all(rollout["first_bad_step"] is None for rollout in told)
    wrong = [*words, str(home / "wrong.onnx"), "--allow-other-model"]
    assert subprocess.run(wrong, capture_output=True, check=False).returncode == 1
    told = json.loads((tmp_path / "r.json").read_text())["rollouts"]
    assert told[0]["first_bad_step"] == 1


def test_what_is_stored_is_what_was_recorded(home: Path) -> None:
    with open_bundle(home / "model.proof") as bundle:
        signature = bundle.manifest.signature
        (stored, *_) = bundle.rollouts()
    content, record = rollouts.to_members(stored, signature, "rollouts/000.safetensors")
    again = rollouts.from_members(record, content, signature, "")
    assert again.states == stored.states and again.lengths == stored.lengths
    for one, other in zip(again.calls, stored.calls, strict=True):
        assert one.inputs.keys() == other.inputs.keys()
        assert all(np.array_equal(one.inputs[name], other.inputs[name]) for name in one.inputs)
        assert {name: answer.noise.rms for name, answer in one.answers.items()} == {
            name: answer.noise.rms for name, answer in other.answers.items()
        }


def test_forged_rollouts_are_refused(home: Path) -> None:
    members = members_of(home / "model.proof")
    contents = manifest.loads(members["manifest.json"], "")
    (record, *_) = contents.rollouts
    content, signature = members[record.file], contents.signature
    forged = replace(record, states={"nothing": "nowhere"})
    with pytest.raises(BundleError, match="has states that the model has not"):
        rollouts.from_members(forged, content, signature, "")
    longer = replace(record, calls=record.calls * 2)
    with pytest.raises(BundleError, match="lacks the tensor"):
        rollouts.from_members(longer, content, signature, "")
    with pytest.raises(BundleError, match="too many"):
        rollouts.from_members(replace(record, calls=record.calls[:1]), content, signature, "")
    about = {"dtype": "F32", "shape": [25_000_000_000], "data_offsets": [0, 100_000_000_000]}
    header = json.dumps({"initial_0": about}).encode()
    huge = struct.pack("<Q", len(header)) + header + b"\0" * 64
    with pytest.raises(BundleError, match="can't be read"):
        rollouts.from_members(record, huge, signature, "")
    unlisted = json.loads(members["manifest.json"])
    unlisted["rollouts"][0]["file"] = "rollouts/999.safetensors"
    with pytest.raises(BundleError, match="are not listed"):
        manifest.loads(json.dumps(unlisted).encode(), "")
