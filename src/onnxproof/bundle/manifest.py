"""What a bundle says of itself: the model, the cases, the policy and the hash of every file in it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxproof.errors import UsageError
from onnxproof.options import Policy
from onnxproof.report.writers.json import layout, restore, to_plain
from onnxproof.results import Domain, NoiseKind, Signature, Verdict, Void

SCHEMA = "1"
TOOL = "onnxproof"
MANIFEST = "manifest.json"
STATEMENT = "statement.json"
ENVELOPE = "statement.dsse.json"
PROOF = "proof.json"
SCRIPT = "replay.py"
BOM = "bom.json"
MODEL_FOLDER = "model/"
UNLISTED = (MANIFEST, STATEMENT, ENVELOPE)
"""Files without a hash in the manifest: itself, and the two that hold the manifest's own hash."""
_KNOWN = re.compile(
    r"proof\.json|bom\.json|replay\.py|cases/\d+\.safetensors|rollouts/\d+\.safetensors|test_data_set_\d+/(input|output)_\d+\.pb|model/.+"
)
"""The names that a bundle may hold beside these."""


class BundleError(UsageError):
    """The bundle can't be used: damaged, changed, or not one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One file, by its hash."""

    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """The ONNX file that was proven, and its external data."""

    name: str
    fingerprint: str
    """SHA-256 over all of its files, one after the other."""
    files: tuple[StoredFile, ...]
    included: bool = False
    """Whether they are in the bundle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredNoise:
    """How far the reference itself is from the truth, confirmed by re-runs."""

    kind: NoiseKind
    rms: float = 0.0
    worst: float = 0.0
    flips: float = 0.0
    members: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRecord:
    """One output of one case; its tensors are in the case's file."""

    noise: StoredNoise
    loud: StoredNoise | None = None
    """The noise where louder rounding flips a decision inside the model; None where none flips."""
    visible: StoredNoise | None = None
    """The noise of what no mask hides; None where none hides anything."""
    undecided: bool = False
    """Whether rounding decides if a value is finite."""
    void: Void | None = None
    unread: bool = False
    """A state of a loop that is not compared: it differs where no later call reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRecord:
    """One case: what it is, and where its tensors are."""

    name: str
    group: str
    about: str
    file: str
    test_data: str
    """The folder of the same tensors for other tools."""
    outputs: tuple[OutputRecord, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    ordinary: bool = False
    domain: Domain | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """The dtypes of tensors that are stored as another: complex numbers as pairs, bfloat16 as 16 bits."""
    atol: Mapping[str, float] = field(default_factory=dict)
    """By the file's output: what a tool that compares by `atol` alone may allow, from the noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAnswer:
    """One answer to one call of a rollout."""

    output: str
    noise: StoredNoise


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call of a rollout."""

    length: int
    """Tokens or frames that it consumes."""
    answers: tuple[CallAnswer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRecord:
    """Calls that a candidate makes in its own loop: what it answers as state is what it gets as state."""

    name: str
    """Its schedule."""
    file: str
    states: Mapping[str, str]
    """The output that is an input of the next call, by the reference's names."""
    calls: tuple[CallRecord, ...]
    allowed_db: float | None = None
    """Of a quantized file: the ratio of signal to error that still passes."""
    logits: str = ""
    """The answer that the next token is chosen from."""
    dtypes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The table of contents, and all that a replay needs beside the tensors."""

    tool: str
    subject: str
    model: ModelFiles
    verdict: Verdict
    backends: tuple[str, ...]
    policy: Policy
    signature: Signature
    cases: tuple[CaseRecord, ...]
    files: tuple[StoredFile, ...]
    environment: Mapping[str, str]
    rollouts: tuple[RolloutRecord, ...] = ()
    half: str = ""
    quantization: NoiseKind | None = None
    """How the noise of a quantized file is simulated; None for others."""
    usual_scale: Mapping[str, float] = field(default_factory=dict)
    """The usual size of each output: an error far below it is nothing."""
    left_out: int = 0
    """Cases that were recorded and are not in here: no room, no confirmed noise, or an answer that ties decide."""


def dumps(manifest: Manifest) -> str:
    """The text of `manifest.json`."""
    return layout({"schema": SCHEMA} | to_plain(manifest))


def loads(content: bytes, where: str) -> Manifest:
    """The manifest, if it is one that this onnxproof reads."""
    document = _document(content, where)
    if document.get("tool") != TOOL:
        raise BundleError("not-a-bundle", "this zip was not written by onnxproof", where=where)
    if document.get("schema") != SCHEMA:
        raise BundleError(
            "other-schema",
            f"this bundle has schema {document.get('schema')!s:.20}, and this onnxproof reads {SCHEMA}",
            where=where,
            help="bundle again, or use the onnxproof that wrote it",
        )
    body = {name: value for name, value in document.items() if name != "schema"}
    try:
        manifest: Manifest = restore(body, Manifest, "manifest")
    except (TypeError, ValueError, KeyError, OverflowError) as why:
        raise damaged(f"its manifest is damaged: {why}", where) from why
    _check_names(manifest, where)
    return manifest


def damaged(what: str, where: str) -> BundleError:
    """The error for a bundle that is not what it was."""
    return BundleError("bundle-damaged", what, where=where, help="get it again from who made it")


def _document(content: bytes, where: str) -> dict[str, Any]:
    try:
        document = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as why:
        raise damaged("its manifest is not JSON", where) from why
    if not isinstance(document, dict):
        raise damaged("its manifest is no JSON object", where)
    return document


def _check_names(manifest: Manifest, where: str) -> None:
    """Refuse files of other kinds, one that is listed twice, and a case without its file."""
    names = [file.name for file in manifest.files]
    for name in names:
        if not _KNOWN.fullmatch(name):
            raise damaged(f"`{name}` has no place in a bundle", where)
    if len(set(names)) != len(names):
        raise damaged("its manifest lists a file twice", where)
    for case in manifest.cases:
        if case.file not in names or not case.file.startswith("cases/"):
            raise damaged(f"the tensors of case `{case.name}` are not listed", where)
        if len(case.outputs) != len(manifest.signature.outputs):
            raise damaged(f"case `{case.name}` has another number of outputs", where)
    if len({case.name for case in manifest.cases}) != len(manifest.cases):
        raise damaged("two of its cases have one name", where)
    _check_rollouts(manifest, names, where)


def _check_rollouts(manifest: Manifest, names: list[str], where: str) -> None:
    for rollout in manifest.rollouts:
        if rollout.file not in names or not rollout.file.startswith("rollouts/"):
            raise damaged(f"the tensors of rollout `{rollout.name}` are not listed", where)
