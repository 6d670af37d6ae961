"""Rollouts as files of a bundle: the tensors of every call, those that stay the same once."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from onnxproof.bundle import tensors
from onnxproof.bundle.cases import from_record, to_record
from onnxproof.bundle.manifest import CallAnswer, CallRecord, RolloutRecord, damaged
from onnxproof.results import Signature
from onnxproof.verification.rollout.recorded import RecordedAnswer, RecordedCall, RecordedRollout

Array = np.ndarray[Any, Any]
SHARE = 0.25
"""Of a bundle's bytes that rollouts may take (not measured)."""


def to_members(
    rollout: RecordedRollout, signature: Signature, file: str
) -> tuple[bytes, RolloutRecord]:
    """The tensors as a file, and what the manifest says of them. An input that is the last call's is not stored again."""
    inputs = {info.name: place for place, info in enumerate(signature.inputs)}
    arrays = {f"initial_{inputs[name]}": state for name, state in rollout.initial.items()}
    before: dict[str, Array] = {}
    for number, call in enumerate(rollout.calls):
        for name, array in call.inputs.items():
            if not _same(array, before.get(name)):
                arrays[f"{number}_input_{inputs[name]}"] = before[name] = array
        if call.real is not None:
            arrays[f"{number}_real"] = call.real
        arrays |= _answer_arrays(number, call)
    content, odd = tensors.save(arrays)
    record = RolloutRecord(
        name=rollout.schedule,
        file=file,
        states=dict(rollout.states),
        calls=tuple(map(_call_record, rollout.lengths, rollout.calls)),
        allowed_db=rollout.allowed_db,
        logits=rollout.logits,
        dtypes=odd,
    )
    return content, record


def from_members(
    record: RolloutRecord, content: bytes, signature: Signature, where: str
) -> RecordedRollout:
    """The rollout behind `to_members`."""
    arrays = tensors.load(content, record.dtypes, where)
    names = [info.name for info in signature.inputs]
    outputs = [info.name for info in signature.outputs]
    if not {*record.states} <= {*outputs} or not {*record.states.values()} <= {*names}:
        raise damaged(f"rollout `{record.name}` has states that the model has not", where)
    try:
        initial = {
            name: arrays.pop(f"initial_{names.index(name)}") for name in record.states.values()
        }
        driven = [name for name in names if name not in initial]
        calls = tuple(_calls(record, arrays, driven, names))
    except (KeyError, IndexError) as why:
        raise damaged(f"rollout `{record.name}` lacks the tensor {why}", where) from why
    if arrays:
        raise damaged(f"rollout `{record.name}` has a tensor `{min(arrays)}` too many", where)
    return RecordedRollout(
        schedule=record.name,
        lengths=tuple(call.length for call in record.calls),
        states=record.states,
        initial=initial,
        calls=calls,
        allowed_db=record.allowed_db,
        logits=record.logits,
    )


def _answer_arrays(number: int, call: RecordedCall) -> dict[str, Array]:
    arrays = {}
    for place, answer in enumerate(call.answers.values()):
        arrays[f"{number}_reference_{place}"] = answer.reference
        if answer.truth is not None:
            arrays[f"{number}_truth_{place}"] = answer.truth
        if answer.noise.unstable is not None:
            arrays[f"{number}_unstable_{place}"] = answer.noise.unstable
    return arrays


def _call_record(length: int, call: RecordedCall) -> CallRecord:
    answers = [
        CallAnswer(output=name, noise=to_record(answer.noise))
        for name, answer in call.answers.items()
    ]
    return CallRecord(length=length, answers=tuple(answers))


def _calls(
    record: RolloutRecord, arrays: dict[str, Array], driven: list[str], names: list[str]
) -> Iterator[RecordedCall]:
    fed: Mapping[str, Array] = {}
    for number, call in enumerate(record.calls):
        own = {name: f"{number}_input_{names.index(name)}" for name in driven}
        fresh = {name: arrays.pop(key) for name, key in own.items() if key in arrays}
        fed = {**fed, **fresh}
        if number == 0 and fed.keys() != {*driven}:
            raise KeyError(f"of an input of call {number}")
        answers = {}
        for place, answer in enumerate(call.answers):
            answers[answer.output] = RecordedAnswer(
                reference=arrays.pop(f"{number}_reference_{place}"),
                truth=arrays.pop(f"{number}_truth_{place}", None),
                noise=from_record(answer.noise, arrays.pop(f"{number}_unstable_{place}", None)),
            )
        yield RecordedCall(inputs=fed, real=arrays.pop(f"{number}_real", None), answers=answers)


def _same(array: Array, before: Array | None) -> bool:
    if before is None or array.dtype != before.dtype or array.shape != before.shape:
        return False
    return array.tobytes() == before.tobytes()
