"""From a recorded case to a stored one and back: its noise is confirmed here, since nobody can re-run the reference where it is replayed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxproof.bundle import tensors
from onnxproof.bundle.manifest import CaseRecord, OutputRecord, StoredNoise, damaged
from onnxproof.numerics.measure import Noise
from onnxproof.results import Case, Signature, Void
from onnxproof.verification.case_reference import LOUD_RERUNS, CaseReference
from onnxproof.verification.recording import RecordedCase, Recording

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOutput:
    """What the reference answers to one output of one case, with its confirmed noise."""

    reference: Array
    truth: Array | None
    noise: Noise
    loud: Noise | None = None
    visible: Noise | None = None
    excused: Array | None = None
    """The values that a mask hides."""
    undecided: bool = False
    void: Void | None = None
    unread: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCase:
    """One case of a bundle: what goes in, and what must come out."""

    case: Case
    outputs: tuple[StoredOutput, ...]


def passes_to_confirm(recording: Recording, recorded: RecordedCase, reruns: int) -> int:
    """How many runs of the reference `confirm` takes for this case."""
    reference = recorded.reference
    outputs = len(reference.reference)
    passes = 0
    if not reference.confirmed:
        passes += reruns
    if recording.decides:
        passes += LOUD_RERUNS * outputs
    if recording.orders:
        passes += 2
    if recording.masks is not None and recording.masks.hidden(recorded.case.inputs):
        passes += reruns * outputs
    return passes


def confirm(
    recording: Recording,
    recorded: RecordedCase,
    voids: Mapping[str, Void | None],
    reruns: int,
) -> StoredCase | None:
    """The case with noise that re-runs confirmed; None where the order of equal values decides the answer, which no noise describes."""
    reference = recorded.reference.fork()
    if recording.orders and _ties_decide(recording, recorded):
        return None
    reference.confirm(reruns)
    outputs = tuple(
        _confirm_output(recording, reference, place, void, reruns)
        for place, void in enumerate(voids.values())
    )
    return StoredCase(case=recorded.case, outputs=outputs)


def _confirm_output(
    recording: Recording,
    reference: CaseReference,
    place: int,
    void: Void | None,
    reruns: int,
) -> StoredOutput:
    quiet = reference.noise(place)
    loud = None
    if recording.decides and reference.measure_flips(place):
        loud = reference.noise(place)
    excused, visible = _beside_masks(recording, reference, place, reruns)
    return StoredOutput(
        reference=reference.reference[place],
        truth=reference.truth[place],
        noise=quiet,
        loud=loud,
        visible=visible,
        excused=excused,
        undecided=reference.undecided_infinities(place),
        void=void,
    )


def _beside_masks(
    recording: Recording, reference: CaseReference, place: int, reruns: int
) -> tuple[Array | None, Noise | None]:
    """The values that a mask hides, and the noise of the others."""
    case, masks = reference.case, recording.masks
    if masks is None or not masks.hidden(case.inputs):
        return None, None
    excused = masks.excused(case.inputs, case.sizes, reference.reference[place].shape)
    if not excused.any():
        return None, None
    part = reference.select(place, ~excused)
    part.estimate()
    part.confirm(reruns)
    return excused, part.noise(place)


def _ties_decide(recording: Recording, recorded: RecordedCase) -> bool:
    """Whether the answer depends on which of several equal values comes first."""
    inputs = recorded.case.inputs
    first = recording.reference.ties(inputs, "first")
    last = recording.reference.ties(inputs, "last")
    if first is None or last is None:
        return False
    return any(
        one.shape != other.shape or not np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
        for one, other in zip(first, last, strict=True)
    )


def to_members(
    stored: StoredCase, signature: Signature
) -> tuple[bytes, dict[str, str], tuple[OutputRecord, ...]]:
    """The tensors of a case as a file, the dtypes that it can't hold, and what the manifest says of its outputs."""
    arrays: dict[str, Array] = {}
    for place, info in enumerate(signature.inputs):
        arrays[f"input_{place}"] = np.asarray(stored.case.inputs[info.name])
    for place, output in enumerate(stored.outputs):
        optional = {
            "truth": output.truth,
            "unstable": _unstable(output.noise),
            "loud_unstable": _unstable(output.loud),
            "excused": output.excused,
        }
        arrays[f"reference_{place}"] = output.reference
        for name, array in optional.items():
            if array is not None:
                arrays[f"{name}_{place}"] = array
    content, odd = tensors.save(arrays)
    return content, odd, tuple(map(_record, stored.outputs))


def from_members(
    record: CaseRecord, content: bytes, signature: Signature, where: str
) -> StoredCase:
    """The case behind `to_members`."""
    arrays = tensors.load(content, record.dtypes, where)
    try:
        inputs = {
            info.name: arrays.pop(f"input_{place}") for place, info in enumerate(signature.inputs)
        }
        outputs = tuple(
            _stored_output(output, arrays, place) for place, output in enumerate(record.outputs)
        )
    except KeyError as why:
        raise damaged(f"case `{record.name}` lacks the tensor {why}", where) from why
    if arrays:
        raise damaged(f"case `{record.name}` has a tensor `{min(arrays)}` too many", where)
    case = Case(
        name=record.name,
        group=record.group,
        about=record.about,
        inputs=inputs,
        sizes=record.sizes,
        ordinary=record.ordinary,
        domain=record.domain,
    )
    stored = StoredCase(case=case, outputs=outputs)
    _check_shapes(stored, where)
    return stored


def _stored_output(record: OutputRecord, arrays: dict[str, Array], place: int) -> StoredOutput:
    return StoredOutput(
        reference=arrays.pop(f"reference_{place}"),
        truth=arrays.pop(f"truth_{place}", None),
        noise=from_record(record.noise, arrays.pop(f"unstable_{place}", None)),
        loud=_noise_or_none(record.loud, arrays.pop(f"loud_unstable_{place}", None)),
        visible=_noise_or_none(record.visible, None),
        excused=arrays.pop(f"excused_{place}", None),
        undecided=record.undecided,
        void=record.void,
        unread=record.unread,
    )


def _check_shapes(stored: StoredCase, where: str) -> None:
    """Truth and masks have the shape of the answer that they belong to."""
    for output in stored.outputs:
        shape = output.reference.shape
        beside = [array for array in (output.truth, output.excused) if array is not None]
        if any(array.shape != shape for array in beside):
            raise damaged(f"case `{stored.case.name}` has tensors of two shapes", where)


def _record(output: StoredOutput) -> OutputRecord:
    return OutputRecord(
        noise=to_record(output.noise),
        loud=_stored_or_none(output.loud),
        visible=_stored_or_none(output.visible),
        undecided=output.undecided,
        void=output.void,
        unread=output.unread,
    )


def to_record(noise: Noise) -> StoredNoise:
    """The noise as the manifest has it; its mask is a tensor of the case."""
    return StoredNoise(
        kind=noise.kind,
        rms=noise.rms,
        worst=noise.worst,
        flips=noise.flips,
        members=noise.members,
    )


def from_record(stored: StoredNoise, unstable: Array | None) -> Noise:
    """The noise behind `to_record`."""
    return Noise(
        rms=stored.rms,
        worst=stored.worst,
        flips=stored.flips,
        unstable=unstable,
        kind=stored.kind,
        members=stored.members,
    )


def _stored_or_none(noise: Noise | None) -> StoredNoise | None:
    return None if noise is None else to_record(noise)


def _noise_or_none(stored: StoredNoise | None, unstable: Array | None) -> Noise | None:
    return None if stored is None else from_record(stored, unstable)


def _unstable(noise: Noise | None) -> Array | None:
    return None if noise is None else noise.unstable


def usual_scales(
    recorded: Sequence[RecordedCase],
    scales: Mapping[tuple[str, str], float],
    outputs: Sequence[str],
) -> dict[str, float]:
    """The median size of each output over the ordinary cases, from the sizes by case and output."""
    usual = {}
    for output in outputs:
        seen = [scales.get((one.case.name, output), 0.0) for one in recorded if one.case.ordinary]
        usual[output] = float(np.median(seen)) if seen else 0.0
    return usual
