"""What a loop's states would be if the cache were kept wrongly: changes of the reference's own outputs."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from onnxproof.reference.protocol import Reference
from onnxproof.results import Signature
from onnxproof.verification.rollout.loop import Loop, StatePair, find_loops
from onnxproof.verification.rollout.state_names import Tensor

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]
_MOST_EXCHANGES = 48
"""Pairs of states that are exchanged for a trial (not measured)."""
_MOST_NAMED = 4
_ROUNDING = 1e-4
"""Of a state's size: what is nearer is the same state (float32 rounding is a thousandth of it; not measured further)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongStates:
    """One way to keep states wrongly."""

    what: str
    change: Callable[[Inputs, list[Array]], list[Array] | None]
    """The reference's outputs with the change; None where it makes no sense for this call."""


def loop_of(signature: Signature, *, confirmed: bool = False) -> Loop | None:
    """The loop that names tell; one that only shapes tell where the reference has confirmed a loop."""
    inputs = [
        Tensor(name=i.name, aliases=_names(i.name, i.onnx_name), dtype=i.dtype, shape=i.shape)
        for i in signature.inputs
    ]
    outputs = [
        Tensor(name=o.name, aliases=_names(o.name, o.onnx_name), dtype=o.dtype, shape=o.shape)
        for o in signature.outputs
    ]
    loops = [loop for loop in find_loops(inputs, outputs) if confirmed or not loop.is_guessed]
    return next(iter(loops), None)


def _names(name: str, onnx_name: str | None) -> tuple[str, ...]:
    return (name, onnx_name) if onnx_name else (name,)


def wrong_states(
    loop: Loop,
    signature: Signature,
    reference: Reference,
    inputs: Inputs,
    candidate: Sequence[Array | None],
) -> Iterator[WrongStates]:
    """The ways, the usual ones first; `inputs` are the witness's, `candidate` the file's own outputs on it."""
    places = {output.name: place for place, output in enumerate(signature.outputs)}
    yield from _exchanges(loop, signature, places)
    own = reference.run(inputs)
    for pairs in _alike_and_differing(loop, places, own, candidate):
        growing = [pair for pair in pairs if pair.grows is not None]
        if growing:
            yield from _along_the_growing_axis(growing, places, candidate)
        yield from _from_other_calls(Loop(states=tuple(pairs)), places, reference)
        yield from _within_states(pairs, places, own, candidate)


def _alike_and_differing(
    loop: Loop, places: Mapping[str, int], own: Sequence[Array], candidate: Sequence[Array | None]
) -> list[list[StatePair]]:
    """All states; and those that differ on the witness, where these are fewer."""
    every = list(loop.states)
    differing = [
        pair for pair in every if _differs(own[places[pair.output]], candidate[places[pair.output]])
    ]
    if not differing or len(differing) == len(every):
        return [every]
    return [every, differing]


def _differs(own: Array, other: Array | None) -> bool:
    if other is None or own.shape != other.shape:
        return True
    size = float(np.abs(own).max(initial=0.0))
    apart = np.abs(own.astype(np.float64) - other.astype(np.float64)).max(initial=0.0)
    return not apart <= _ROUNDING * size


def _from_other_calls(
    loop: Loop, places: Mapping[str, int], reference: Reference
) -> Iterator[WrongStates]:
    """The states of before, and those of a call that knows nothing."""
    names = _listed(loop.states)
    yield WrongStates(
        what=f"{names} come back as they went in",
        change=lambda inputs, outputs: _replaced(
            outputs, {places[pair.output]: inputs[pair.input] for pair in loop.states}
        ),
    )
    yield WrongStates(
        what=f"{names} come back without what came before: they start anew at every call",
        change=lambda inputs, outputs: _from_nothing(loop, places, reference, inputs, outputs),
    )


def _within_states(
    pairs: Sequence[StatePair],
    places: Mapping[str, int],
    own: Sequence[Array],
    candidate: Sequence[Array | None],
) -> Iterator[WrongStates]:
    """One row for all, layers or heads in reverse order, values that are cut off."""
    names = _listed(pairs)
    outputs = [places[pair.output] for pair in pairs]

    def each(change: Callable[[Array], Array]) -> Callable[[Inputs, list[Array]], list[Array]]:
        return lambda inputs, given: _replaced(
            given, {place: change(given[place]) for place in outputs}
        )

    for axis in range(min(2, *(own[place].ndim for place in outputs))):
        yield WrongStates(
            what=f"{names} come back with the first place of axis {axis} in all of them",
            change=each(partial(_first_for_all, axis)),
        )
        yield WrongStates(
            what=f"{names} come back in reverse order along axis {axis}",
            change=each(partial(np.flip, axis=axis)),
        )
    ends = _ends([candidate[place] for place in outputs])
    if ends is not None:
        low, high = ends
        yield WrongStates(
            what=f"{names} are cut off at {low:.3g} and {high:.3g}",
            change=each(lambda state: np.clip(state, low, high)),
        )


def _ends(answers: Sequence[Array | None]) -> tuple[float, float] | None:
    """The smallest and the largest value of all arrays of floats; None where there are none."""
    floats = [answer for answer in answers if answer is not None and answer.dtype.kind == "f"]
    filled = [answer for answer in floats if answer.size]
    if not filled:
        return None
    return (
        min(float(answer.min()) for answer in filled),
        max(float(answer.max()) for answer in filled),
    )


def _first_for_all(axis: int, state: Array) -> Array:
    return np.broadcast_to(np.take(state, [0], axis), state.shape).copy()


def _listed(pairs: Sequence[StatePair]) -> str:
    names = [f"`{pair.output}`" for pair in pairs[:_MOST_NAMED]]
    return ", ".join(names) + ", ..." * (len(pairs) > _MOST_NAMED)


def _exchanges(
    loop: Loop, signature: Signature, places: Mapping[str, int]
) -> Iterator[WrongStates]:
    """Two states of one shape in each other's place: key and value, two layers, h and c."""
    shapes = {output.name: output.shape for output in signature.outputs}
    names = {output.name: output.onnx_name or output.name for output in signature.outputs}
    alike = [
        (one.output, other.output)
        for one, other in itertools.combinations(loop.states, 2)
        if shapes[one.output] == shapes[other.output]
    ]
    for one, other in alike[:_MOST_EXCHANGES]:
        first, second = places[one], places[other]

        def exchange(
            inputs: Inputs, outputs: list[Array], first: int = first, second: int = second
        ) -> list[Array]:
            return _replaced(outputs, {first: outputs[second], second: outputs[first]})

        yield WrongStates(
            what=f"`{names[one]}` and `{names[other]}` come back in each other's place",
            change=exchange,
        )


def _along_the_growing_axis(
    growing: Sequence[StatePair], places: Mapping[str, int], candidate: Sequence[Array | None]
) -> Iterator[WrongStates]:
    """Every state cut, shifted or with its newest place lost."""

    def each(change: Callable[[Array, int], Array]) -> Any:
        def changed(inputs: Inputs, outputs: list[Array]) -> list[Array]:
            return _replaced(
                outputs,
                {
                    places[pair.output]: change(outputs[places[pair.output]], pair.grows or 0)
                    for pair in growing
                },
            )

        return changed

    yield WrongStates(
        what="the newest token is missing from the cache, and the one before it stands twice",
        change=each(lambda state, axis: np.take(state, _with_last_twice(state.shape[axis]), axis)),
    )
    yield WrongStates(
        what="the newest token is missing from the cache",
        change=each(lambda state, axis: np.take(state, np.arange(state.shape[axis] - 1), axis)),
    )
    yield WrongStates(
        what="the cache is shifted by one place",
        change=each(lambda state, axis: np.roll(state, 1, axis)),
    )
    first = growing[0]
    own = candidate[places[first.output]]
    if own is None or not own.ndim:
        return
    kept = own.shape[first.grows or 0]
    yield WrongStates(
        what=f"the cache keeps the newest {kept} tokens only",
        change=each(
            lambda state, axis: np.take(
                state, np.arange(max(0, state.shape[axis] - kept), state.shape[axis]), axis
            )
        ),
    )


def _with_last_twice(size: int) -> Array:
    places = np.arange(size)
    if size > 1:
        places[-1] = size - 2
    return places


def _from_nothing(
    loop: Loop,
    places: Mapping[str, int],
    reference: Reference,
    inputs: Inputs,
    outputs: list[Array],
) -> list[Array] | None:
    empty = {pair.input: np.zeros_like(inputs[pair.input]) for pair in loop.states}
    fresh = reference.run({**inputs, **empty})
    return _replaced(
        outputs, {places[pair.output]: fresh[places[pair.output]] for pair in loop.states}
    )


def _replaced(outputs: Sequence[Array], changed: Mapping[int, Array]) -> list[Array]:
    return [changed.get(place, output) for place, output in enumerate(outputs)]
