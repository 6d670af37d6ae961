"""Whether an input really hides what it masks: tried on the reference, never concluded from a name alone.

An input hides by a value (0, 1, or minus infinity) when a place that holds it makes the content of that place irrelevant.
1. Every place of the mask is visible; the content of one place is changed: the answers elsewhere must move.
2. That one place is hidden; its content is changed in the same way: the answers elsewhere must stay as they are.
3. It is hidden, and the content of its neighbour is changed: the answers must move. Infinity in the state of a recurrent cell
   saturates every gate, so that nothing moves them any more.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum

import numpy as np

from onnxproof.inputs.space import Array, Inputs, Role, Slot, Space, as_dtype, is_float, upper

Run = Callable[[Inputs], Sequence[Array]]
HIDDEN_BELOW = -1e3
"""An additive mask hides where it is below this; scores of trained models stay within a few hundred."""
_SAME = 2.0
_MOVED = 8.0
"""Steps of the output's dtype at its scale. A hidden place has the weight zero exactly, so that nothing but another order of sums can move
the answer; a visible place that moves it by less than `_MOVED` can't be distinguished from a hidden one, and the input is then no mask (not measured)."""
_MOST_TRIES = 8
"""Inputs and places that are changed to see whether a mask hides them (not measured)."""


class Hides(StrEnum):
    """Which value of a mask hides a place."""

    ZERO = "zero"
    ONE = "one"
    LOW = "low"
    """Far below zero: the mask is added to scores."""


def hidden_places(array: Array, how: Hides) -> Array:
    """The places that a mask hides."""
    if how is Hides.LOW:
        return np.asarray(array.astype(np.float64) <= HIDDEN_BELOW)
    if how is Hides.ONE:
        return np.asarray(array != 0)
    return np.asarray(array == 0)


def with_hidden(array: Array, how: Hides, hidden: Array) -> Array:
    """The mask with exactly these places hidden; a place that was hidden already keeps its value."""
    if how is Hides.ONE:
        return as_dtype(hidden, array.dtype)
    if how is Hides.ZERO:
        return as_dtype(~hidden, array.dtype)
    kept = hidden_places(array, how) & hidden
    fill = np.where(hidden, -np.inf, 0.0)
    mask = np.where(kept, array.astype(np.float64), fill)
    return as_dtype(mask, array.dtype)


def confirm_roles(space: Space, run: Run) -> Space:
    """The space in which a float input counts as an additive mask only where the reference treats it as one."""
    slots = []
    for slot in space.slots:
        if slot.additive and not _is_additive(space, slot, run):
            slot = replace(slot, additive=False)
        slots.append(slot)
    if tuple(slots) == space.slots:
        return space
    return replace(space, slots=tuple(slots))


def _is_additive(space: Space, slot: Slot, run: Run) -> bool:
    """Shown by trying; an input that is called a mask is believed where nothing can be tried, if the reference stays finite."""
    if how_it_hides(space, slot, run) is not None:
        return True
    if "mask" not in slot.name.lower() or list(_content_changes(space, slot)):
        return False
    inputs = {other.name: other.example for other in space.slots}
    return _answers_elsewhere(inputs, slot, Hides.LOW, run, hide=True) is not None


def how_it_hides(space: Space, slot: Slot, run: Run) -> Hides | None:
    """The value by which this input hides a place, or None where none was shown to."""
    if not slot.example.ndim or slot.example.shape[-1] < 2:
        return None
    ways: tuple[Hides, ...] = (Hides.ZERO, Hides.ONE)
    if slot.additive:
        ways = (Hides.LOW,)
    return next((how for how in ways if _hides_by(how, space, slot, run)), None)


def _hides_by(
    how: Hides,
    space: Space,
    slot: Slot,
    run: Run,
) -> bool:
    """Whether a place that holds this value is hidden: the three steps of the module's docstring."""
    inputs = {other.name: other.example for other in space.slots}
    visible = _answers_elsewhere(inputs, slot, how, run, hide=False)
    hidden = _answers_elsewhere(inputs, slot, how, run, hide=True)
    if visible is None or hidden is None:
        return False
    for here, neighbour in list(_content_changes(space, slot))[:_MOST_TRIES]:
        changed_here = {**inputs, **here}
        changed_beside = {**inputs, **neighbour}
        moved = _answers_elsewhere(changed_here, slot, how, run, hide=False)  # 1
        stayed = _answers_elsewhere(changed_here, slot, how, run, hide=True)  # 2
        moved_beside = _answers_elsewhere(changed_beside, slot, how, run, hide=True)  # 3
        if (
            _distance(hidden, stayed) <= _SAME
            and _distance(visible, moved, refused=0.0) > _MOVED
            and _distance(hidden, moved_beside, refused=0.0) > _MOVED
        ):
            return True
    return False


def _hidden_place(slot: Slot) -> int:
    """The place that is hidden, in the middle: under a causal mask nothing before it sees it, and everything behind it does."""
    return int(slot.example.shape[-1]) // 2


def _answers_elsewhere(
    inputs: Inputs,
    slot: Slot,
    how: Hides,
    run: Run,
    *,
    hide: bool,
) -> list[Array] | None:
    """The reference's float outputs with one place of the mask hidden or none, without what they say of that very place; None where it refuses or they are not finite."""
    hidden = np.zeros(slot.example.shape, bool)
    hidden[..., _hidden_place(slot)] = hide
    mask = with_hidden(np.zeros_like(slot.example), how, hidden)
    try:
        outputs = run({**inputs, slot.name: mask})
    except Exception:  # whatever the user's module raises: it does not take this mask
        return None
    floats = [_without_place(output, slot) for output in outputs if is_float(output.dtype)]
    for output in floats:
        if not np.isfinite(output.astype(np.float64)).all():
            return None
    return floats or None


def _without_place(output: Array, slot: Slot) -> Array:
    """An output without the hidden place, on every axis as long as the mask."""
    width = slot.example.shape[-1]
    for axis, size in enumerate(output.shape):
        if size == width:
            output = np.delete(output, _hidden_place(slot), axis)
    return output


def _content_changes(
    space: Space, slot: Slot
) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
    """An input whose values at the masked place are changed, and the same for the place before it, the likeliest input first.

    Inputs share the mask's dim (most likely), its size, or an end of it (a cache and what follows it).
    """
    place = _hidden_place(slot)
    width = slot.example.shape[-1]
    changes = []
    for other in space.slots:
        if other.name == slot.name or other.role is Role.MASK or other.additive:
            continue
        for axis, size in enumerate(other.example.shape):
            rank = _likelihood_rank(slot, other, axis)
            for index in dict.fromkeys((place, place - width + size)):
                if 0 <= index < size <= width:
                    changes.append((rank, other, axis, index))
    for _, other, axis, index in sorted(changes, key=lambda change: change[0]):
        if other.example.shape[axis] > 1:
            here = _changed(space, other, axis, index)
            neighbour = _changed(space, other, axis, index - 1)
            yield {other.name: here}, {other.name: neighbour}


def _likelihood_rank(mask: Slot, other: Slot, axis: int) -> int:
    """How likely an axis of another input is what the mask hides; 0 is the likeliest."""
    if other.info.dims[axis] == mask.info.dims[-1]:
        return 0
    if other.example.shape[axis] == mask.example.shape[-1]:
        return 1
    return 2


def _changed(
    space: Space,
    slot: Slot,
    axis: int,
    index: int,
) -> Array:
    """The example with other values of the same kind at one index of one axis."""
    array = np.moveaxis(slot.example.copy(), axis, 0)
    here = array[index]
    before = array[index - 1]
    if slot.dtype.kind == "c":
        array[index] = as_dtype(1.0 - here, slot.dtype)
    elif is_float(slot.dtype):
        array[index] = as_dtype(1.0 - here.astype(np.float64), slot.dtype)
    else:
        rows = max(upper(slot, space.sizes()), 2)
        array[index] = np.where(here != before, before, (here + 1) % rows)
    return np.moveaxis(array, 0, axis)


def _distance(
    one: Sequence[Array], other: Sequence[Array] | None, refused: float = np.inf
) -> float:
    """The largest difference of two answers, in steps of their dtype at their own scale; `refused` where there is no other."""
    if other is None:
        return refused
    worst = 0.0
    for a, b in zip(one, other, strict=True):
        if a.shape != b.shape:
            return np.inf
        difference = np.abs(a.astype(np.float64) - b.astype(np.float64))
        largest = float(difference.max(initial=0.0))
        worst = max(worst, largest / _step(a))
    return worst


def _step(array: Array) -> float:
    """The spacing of numbers of an array's precision at its own scale."""
    scale = 0.0
    if array.size:
        scale = float(np.sqrt(np.mean(array.astype(np.float64) ** 2)))
    epsilon = 2.0**-10
    if array.dtype.itemsize >= 4:
        epsilon = 2.0**-23
    return epsilon * (scale or 1.0)
