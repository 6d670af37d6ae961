"""Write a bundle: a zip that is the same, byte by byte, for the same proof.

1. Check that the model is still the one that was proven.
2. Confirm the recorded cases, the most telling first, until the bytes or the re-runs are used up.
3. Put the files, their hashes and the statement into a zip without dates.
"""

import hashlib
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from onnxproof.bundle import (
    bom,
    cases,
    manifest,
    model_signing,
    onnx_test_data,
    rollouts,
    signing,
    statement,
)
from onnxproof.bundle.cases import StoredCase
from onnxproof.bundle.manifest import (
    BundleError,
    CaseRecord,
    Manifest,
    ModelFiles,
    RolloutRecord,
    StoredFile,
)
from onnxproof.onnxmodel import onnx_file
from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.options import BundleOptions
from onnxproof.report.writers import json
from onnxproof.results import Void
from onnxproof.results.proof import Proof
from onnxproof.system.writing import replace_file
from onnxproof.verification.case_reference import RERUNS
from onnxproof.verification.recording import Recording, within

_LEAST_PASSES = 8
"""Runs of the reference that may be spent on confirming, however long they take: four cases. Not measured."""
_FEWEST_RERUNS = 2
"""Re-runs of a case where time is short: the second one moves the inputs, too. Not measured."""
_SHARE = 0.8
"""Of the verification's time that re-runs may take; the rest is for files: 0.1 of 1 s for 92 tiny cases."""
_RERUN_COST = 3.0
"""A re-run, in passes of the truth, where the verification made none: 2.9 for the ConvNet of `make bench-bundle`."""
_OVERHEAD = 96 << 10
"""Bytes for the manifest, the statement, `replay.py` and the zip's own entries. Not measured for many outputs."""
_PIECE = 1 << 20
_MEASURES = re.compile(r"# The measures: .*?\n\n", re.DOTALL)
"""The import in `replay_script.py` that they replace."""


def write(proof: Proof, path: Path, options: BundleOptions) -> Path:
    """Write the bundle of a proof that was just made; gives its path."""
    recording = proof.recording
    if not isinstance(recording, Recording) or not recording.cases:
        raise BundleError(
            "no-recording",
            "this proof holds no tensors: it was read from a file, or nothing was compared",
            where=proof.candidate,
            help="`onnxproof bundle proof.json` runs its cases again, `onnxproof verify --bundle PATH` writes both",
        )
    file = require_unchanged(proof)
    texts = {
        manifest.PROOF: json.dumps(proof).encode(),
        manifest.SCRIPT: script().encode(),
    }
    room = int(options.most_mb * (1 << 20)) - _OVERHEAD - len(zlib.compress(texts[manifest.PROOF]))
    rolled, rollout_records = _rollout_members(proof, recording, int(room * rollouts.SHARE))
    room -= sum(map(len, rolled.values()))
    members, records = _case_members(proof, recording, file, room)
    model = _model_files(file, included=options.with_model)
    members = texts | members | rolled | {manifest.BOM: bom.make(proof, model)}
    listed = [_listed(name, content) for name, content in sorted(members.items())]
    if options.with_model:
        listed += [
            StoredFile(
                name=f"{manifest.MODEL_FOLDER}{one.name}", sha256=one.sha256, bytes=one.bytes
            )
            for one in model.files
        ]
    contents = _manifest(proof, recording, model, records, tuple(listed))
    contents = replace(contents, rollouts=rollout_records)
    members[manifest.MANIFEST] = manifest.dumps(contents).encode()
    made = statement.make(contents, members[manifest.MANIFEST], proof)
    members[manifest.STATEMENT] = made
    if options.sign is not None:
        members[manifest.ENVELOPE] = signing.sign(made, options.sign)
    with replace_file(path, what="the bundle") as draft:
        _write_zip(draft, members, file.path.parent, model)
    if options.sign_model is not None:
        beside = [] if options.with_model else [one.name for one in model.files]
        model_signing.sign(path, file.path, beside, options.sign_model)
    return path


def require_unchanged(proof: Proof) -> OnnxFile:
    """The file that was proven, if it is still that one."""
    file = onnx_file.read(proof.candidate)
    if onnx_file.fingerprint(file.path) != proof.hashes.get("candidate"):
        raise BundleError(
            "model-changed",
            f"`{file.path.name}` is no longer the file that was proven",
            where=proof.candidate,
            help="verify it again",
        )
    return file


def _case_members(
    proof: Proof, recording: Recording, file: OnnxFile, room: int
) -> tuple[dict[str, bytes], list[CaseRecord]]:
    """The tensors of the cases by file name, and what the manifest says of each."""
    members: dict[str, bytes] = {}
    records: list[CaseRecord] = []
    for number, stored in enumerate(_confirmed(proof, recording, room)):
        name, folder = f"cases/{number:03}.safetensors", f"test_data_set_{number}"
        content, odd, outputs = cases.to_members(stored, proof.signature)
        members[name] = content
        members |= onnx_test_data.members(stored, folder, file, proof.signature)
        case = stored.case
        records.append(
            CaseRecord(
                name=case.name,
                group=case.group,
                about=case.about,
                file=name,
                test_data=folder,
                outputs=outputs,
                sizes=dict(case.sizes),
                ordinary=case.ordinary,
                domain=case.domain,
                dtypes=odd,
                atol=onnx_test_data.tolerances(stored, proof.signature, proof.policy),
            )
        )
    return members, records


def _rollout_members(
    proof: Proof, recording: Recording, room: int
) -> tuple[dict[str, bytes], tuple[RolloutRecord, ...]]:
    """The tensors of short rollouts by file name, and what the manifest says of each; none for a model without a loop."""
    members, records = {}, []
    for number, rollout in enumerate(recording.record_rollouts(room)):
        name = f"rollouts/{number:03}.safetensors"
        members[name], record = rollouts.to_members(rollout, proof.signature, name)
        records.append(record)
    return members, tuple(records)


def _confirmed(proof: Proof, recording: Recording, room: int) -> Iterator[StoredCase]:
    """The cases that fit, with confirmed noise; the re-runs are counted, so that the same proof gives the same bundle on a busy machine."""
    names = [output.name for output in proof.signature.outputs]
    fitting = within(recording.cases, room)
    left = _affordable_passes(proof)
    full = sum(cases.passes_to_confirm(recording, recorded, RERUNS) for recorded in fitting)
    reruns = RERUNS if full <= left else _FEWEST_RERUNS
    for recorded in fitting:
        needed = cases.passes_to_confirm(recording, recorded, reruns)
        if needed > left:
            continue
        left -= needed
        voids: dict[str, Void | None] = dict.fromkeys(names)
        voids |= {
            gap.output: gap.void
            for gap in proof.gaps
            if gap.case == recorded.case.name and gap.void is not None
        }
        stored = cases.confirm(recording, recorded, voids, reruns)
        if stored is not None:
            yield _without_unread(stored, proof)


def _affordable_passes(proof: Proof) -> int:
    """Re-runs that take as long as the verification took, by what it recorded: writing shall cost no more than proving."""
    for suffix, times in (("-rerun", 1.0), ("64", _RERUN_COST)):
        for name, seconds in proof.seconds.items():
            if name.endswith(suffix) and seconds and proof.passes.get(name):
                each = times * seconds / proof.passes[name]
                return max(int(_SHARE * proof.seconds.get("total", 0.0) / each), _LEAST_PASSES)
    return max(sum(proof.passes.values()), _LEAST_PASSES)


def _without_unread(stored: StoredCase, proof: Proof) -> StoredCase:
    """The case with the outputs marked that the verification did not compare: states that differ where nobody reads them."""
    measured = {gap.output for gap in proof.gaps if gap.case == stored.case.name}
    names = [output.name for output in proof.signature.outputs]
    outputs = [
        replace(output, unread=name not in measured)
        for name, output in zip(names, stored.outputs, strict=True)
    ]
    return replace(stored, outputs=tuple(outputs))


def _manifest(
    proof: Proof,
    recording: Recording,
    model: ModelFiles,
    records: list[CaseRecord],
    listed: tuple[StoredFile, ...],
) -> Manifest:
    if not records:
        raise BundleError(
            "nothing-to-replay",
            "no case of this proof can be replayed: the order of equal values decides them, or none has a confirmed noise",
            where=proof.candidate,
            help="verify with `--data`, or with a larger `--budget`",
        )
    scales = {(gap.case, gap.output): gap.scale for gap in proof.gaps}
    names = [output.name for output in proof.signature.outputs]
    return Manifest(
        tool=manifest.TOOL,
        subject=proof.subject,
        model=model,
        verdict=proof.verdict,
        backends=proof.backends,
        policy=proof.policy,
        signature=proof.signature,
        cases=tuple(records),
        files=listed,
        environment=proof.environment,
        half=proof.half,
        quantization=recording.quantization,
        usual_scale=cases.usual_scales(recording.cases, scales, names),
        left_out=len(proof.sizes) - len(records),
    )


def _model_files(file: OnnxFile, *, included: bool) -> ModelFiles:
    names = [file.path.name, *onnx_file.external_names(file.path)]
    return ModelFiles(
        name=file.path.name,
        fingerprint=onnx_file.fingerprint(file.path),
        files=tuple(_stored_on_disk(file.path.parent, name) for name in names),
        included=included,
    )


def _stored_on_disk(folder: Path, name: str) -> StoredFile:
    path = folder / name
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return StoredFile(name=name, sha256=digest, bytes=path.stat().st_size)


def _listed(name: str, content: bytes) -> StoredFile:
    return StoredFile(name=name, sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))


def script() -> str:
    """`replay.py` as it goes into a bundle: one file, with the measures in the place of their import."""
    folder = Path(__file__).parent
    text = (folder / "replay_script.py").read_text(encoding="utf-8")
    measures = (folder / "replay_measures.py").read_text(encoding="utf-8").partition("# ---\n")[2]
    return _MEASURES.sub(lambda _: measures.rstrip() + "\n\n\n", text)


def _write_zip(draft: Path, members: Mapping[str, bytes], folder: Path, model: ModelFiles) -> None:
    """Names in their order, no dates; text is packed, tensors and weights are not, so that nothing unpacks to much more than it takes."""
    with zipfile.ZipFile(draft, "w") as archive:
        for name in sorted(members, key=lambda name: (name != manifest.MANIFEST, name)):
            archive.writestr(_entry(name), members[name])
        for file in model.files if model.included else ():
            entry = _entry(f"{manifest.MODEL_FOLDER}{file.name}")
            with (
                (folder / file.name).open("rb") as source,
                archive.open(entry, "w", force_zip64=file.bytes >= 1 << 31) as target,
            ):
                while piece := source.read(_PIECE):
                    target.write(piece)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.create_system = 3
    entry.external_attr = 0o100644 << 16
    entry.compress_type = zipfile.ZIP_STORED
    if name.endswith((".json", ".py")):
        entry.compress_type = zipfile.ZIP_DEFLATED
    return entry
