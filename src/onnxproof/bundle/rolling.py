"""Roll a stored rollout in a candidate's own loop: it is fed what the reference was fed, and its own states."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxproof.errors import BackendError, Refused
from onnxproof.numerics.measure import GapLabel, is_float, measure
from onnxproof.options import Policy
from onnxproof.results import Gap, Rollout, Signature
from onnxproof.runtimes.session.execution import Candidate
from onnxproof.verification.rollout import schedules
from onnxproof.verification.rollout.answers import measured_by_quality, select
from onnxproof.verification.rollout.recorded import RecordedCall, RecordedRollout
from onnxproof.verification.rollout.rolling import GROUP, Rolled

Array = np.ndarray[Any, Any]


def roll(
    stored: RecordedRollout,
    candidate: Candidate,
    signature: Signature,
    policy: Policy,
    *,
    elsewhere: bool = False,
) -> tuple[Rollout, list[Gap]]:
    """What the candidate gave, and the worst gap of each answer; a call with an empty tensor runs apart, unless the candidate runs elsewhere."""
    names = [output.name for output in signature.outputs]
    rolled = Rolled(schedule=schedules.parse(stored.schedule))
    states: Mapping[str, Array] = stored.initial
    for place, call in enumerate(stored.calls):
        inputs = {**call.inputs, **states}
        empty = any(array.size == 0 for array in inputs.values())
        try:
            outputs = candidate.run(inputs, isolated=empty and not elsewhere)
            by_name = dict(zip(names, outputs, strict=True))
            states = _next_states(stored, by_name)
        except BackendError as why:
            rolled.refuse(place, why.what[:300], candidate.backend, list(call.answers))
            break
        gaps = _gaps(stored, call, candidate.backend, by_name, policy)
        rolled.note(place, gaps, policy, _language(rolled, stored, call, by_name, gaps, policy))
    language = rolled.language
    what = ""
    if rolled.first_bad == 0:
        what = "step"  # later ones may be the states' fault, and the reference is not here to tell
    rollout = Rollout(
        schedule=stored.schedule,
        backend=candidate.backend,
        steps=rolled.steps,
        first_bad_step=rolled.first_bad,
        first_bad_length=rolled.first_bad_length,
        what=what,
        kl=language.share(language.kl),
        kl_noise=language.share(language.kl_noise),
        agreement=language.share(language.same),
        excused=language.share(language.tied),
        along=tuple(rolled.along),
    )
    return rollout, list(rolled.worst.values())


def _next_states(stored: RecordedRollout, by_name: Mapping[str, Array | None]) -> dict[str, Array]:
    states = {}
    for output, input in stored.states.items():
        state = by_name.get(output)
        if state is None:
            raise Refused("no-state", f"the state `{output}` did not come back")
        states[input] = state
    return states


def _gaps(
    stored: RecordedRollout,
    call: RecordedCall,
    backend: str,
    by_name: Mapping[str, Array | None],
    policy: Policy,
) -> dict[str, Gap]:
    gaps = {}
    for name, answer in call.answers.items():
        gap = measure(
            GapLabel(case=stored.schedule, group=GROUP, backend=backend, output=name),
            reference=answer.reference,
            truth=answer.truth,
            candidate=_real(by_name.get(name), call.real),
            noise=answer.noise,
            atol=policy.atol,
            rtol=policy.rtol,
        )
        if stored.allowed_db is not None and is_float(answer.reference):
            gap = measured_by_quality(gap, stored.allowed_db, policy)
        gaps[name] = gap
    return gaps


def _real(array: Array | None, real: Array | None) -> Array | None:
    if array is None:
        return None
    return select(array, real)


def _language(
    rolled: Rolled,
    stored: RecordedRollout,
    call: RecordedCall,
    by_name: Mapping[str, Array | None],
    gaps: Mapping[str, Gap],
    policy: Policy,
) -> tuple[float, float] | None:
    """Divergence and agreement of a call that answers with logits."""
    name = stored.logits
    candidate = _real(by_name.get(name), call.real)
    if name not in gaps or candidate is None or not gaps[name].compared:
        return None
    answer = call.answers[name]
    truth = answer.reference if answer.truth is None else answer.truth
    classes = answer.reference.shape[-1]
    noise = 2 * policy.noise_limit * gaps[name].noise
    return rolled.language.add(
        answer.reference.reshape(-1, classes),
        truth.reshape(-1, classes),
        candidate.reshape(-1, classes),
        noise,
    )
