"""Whether an input really hides what it masks: tried on the reference, never told by a name alone.

An input hides by a value (0, 1, or minus infinity) when a place that holds it makes the content of that place irrelevant.
1. Every place of the mask is visible; the content of one place is changed: the answers elsewhere must move.
2. That one place is hidden; its content is changed in the same way: the answers elsewhere must stay as they are.
3. It is hidden, and the content of its neighbour is changed: the answers must move. Infinity in the state of a recurrent cell
   saturates every gate, so that nothing moves them any more.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

import numpy as np

from onnxproof.inputs.space import Array, Role, Slot, Space, as_dtype, is_float, upper

Run = Callable[[Mapping[str, Array]], Sequence[Array]]
LOW = -1e3
"""An additive mask hides where it is below this; scores of trained models stay within a few hundred."""
_SAME, _MOVED = 2.0, 8.0
"""Steps of the output's dtype at its scale. A hidden place has the weight zero exactly, so that nothing but another order of sums can move
the answer; a visible place that moves it by less than this is not told from a hidden one, and the input is then no mask."""
_MOST_TRIES = 8


class Hides(StrEnum):
    """Which value of a mask hides a place."""

    ZERO = "zero"
    ONE = "one"
    LOW = "low"
    """Far below zero: the mask is added to scores."""


def hidden_places(array: Array, how: Hides) -> Array:
    """The places that a mask hides."""
    if how is Hides.LOW:
        return np.asarray(array.astype(np.float64) <= LOW)
    return np.asarray((array != 0) if how is Hides.ONE else (array == 0))


def with_hidden(array: Array, how: Hides, hidden: Array) -> Array:
    """The mask with exactly these places hidden; a place that was hidden already keeps its value."""
    if how is not Hides.LOW:
        return as_dtype(hidden if how is Hides.ONE else ~hidden, array.dtype)
    kept = hidden_places(array, how) & hidden
    return as_dtype(
        np.where(kept, array.astype(np.float64), np.where(hidden, -np.inf, 0.0)), array.dtype
    )


def confirm_roles(space: Space, run: Run) -> Space:
    """The space in which a float input counts as an additive mask only where the reference treats it as one."""
    slots = tuple(
        replace(slot, additive=False)
        if slot.additive and not _is_additive(space, slot, run)
        else slot
        for slot in space.slots
    )
    return replace(space, slots=slots) if slots != space.slots else space


def _is_additive(space: Space, slot: Slot, run: Run) -> bool:
    """Shown by trying; an input that is called a mask is believed where nothing can be tried, if the reference stays finite."""
    if how_it_hides(space, slot, run) is not None:
        return True
    inputs = {s.name: s.example for s in space.slots}
    return (
        "mask" in slot.name.lower()
        and not list(_contents(space, slot))
        and _elsewhere(inputs, slot, Hides.LOW, run, hide=True) is not None
    )


def how_it_hides(space: Space, slot: Slot, run: Run) -> Hides | None:
    """The value by which this input hides a place, or None where none was shown to."""
    if not slot.example.ndim or slot.example.shape[-1] < 2:
        return None
    ways = (Hides.LOW,) if slot.additive else (Hides.ZERO, Hides.ONE)
    inputs = {s.name: s.example for s in space.slots}
    for how in ways:
        seen, unseen = (_elsewhere(inputs, slot, how, run, hide=hide) for hide in (False, True))
        if seen is None or unseen is None:
            continue
        for here, neighbour in list(_contents(space, slot))[:_MOST_TRIES]:
            moved = _elsewhere({**inputs, **here}, slot, how, run, hide=False)
            stayed = _elsewhere({**inputs, **here}, slot, how, run, hide=True)
            other = _elsewhere({**inputs, **neighbour}, slot, how, run, hide=True)
            if (
                _distance(unseen, stayed) <= _SAME
                and min(_distance(seen, moved, 0.0), _distance(unseen, other, 0.0)) > _MOVED
            ):
                return how
    return None


def _middle(slot: Slot) -> int:
    """The place that is hidden: under a causal mask nothing before it sees it, and everything behind it does."""
    return int(slot.example.shape[-1]) // 2


def _elsewhere(
    inputs: Mapping[str, Array], slot: Slot, how: Hides, run: Run, *, hide: bool
) -> list[Array] | None:
    """The reference's float outputs with one place of the mask hidden or none, without what they say of that very place; None where it refuses or they are not finite."""
    place, width = _middle(slot), slot.example.shape[-1]
    hidden = np.zeros(slot.example.shape, bool)
    hidden[..., place] = hide
    try:
        outputs = run({**inputs, slot.name: with_hidden(np.zeros_like(slot.example), how, hidden)})
    except Exception:  # whatever the user's module raises: it does not take this mask
        return None
    kept = []
    for output in outputs:
        if not is_float(output.dtype):
            continue
        for axis in [axis for axis, size in enumerate(output.shape) if size == width]:
            output = np.delete(output, place if output.shape[axis] == width else 0, axis)
        kept.append(output)
    finite = all(np.isfinite(output.astype(np.float64)).all() for output in kept)
    return kept if kept and finite else None


def _contents(space: Space, slot: Slot) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
    """An input whose values at the masked place are changed, and the same for the place before it, the likeliest first: they share the mask's dim, its size, or an end of it (a cache and what follows it)."""
    place, width, dim = _middle(slot), slot.example.shape[-1], slot.info.dims[-1]
    found = []
    for other in space.slots:
        if other.name == slot.name or other.role is Role.MASK or other.additive:
            continue
        for axis, size in enumerate(other.example.shape):
            rank = 0 if other.info.dims[axis] == dim else 1 if size == width else 2
            for index in dict.fromkeys((place, place - width + size)):
                if 0 <= index < size <= width:
                    found.append((rank, other, axis, index))
    for _, other, axis, index in sorted(found, key=lambda item: item[0]):
        if other.example.shape[axis] > 1:
            yield (
                {other.name: _changed(space, other, axis, index)},
                {other.name: _changed(space, other, axis, index - 1)},
            )


def _changed(space: Space, slot: Slot, axis: int, index: int) -> Array:
    """The example with other values of the same kind at one index of one axis."""
    array = np.moveaxis(slot.example.copy(), axis, 0)
    here, other = array[index], array[index - 1]
    if is_float(slot.dtype) or slot.dtype.kind == "c":
        array[index] = as_dtype(
            1.0 - here.astype(np.float64) if slot.dtype.kind != "c" else 1.0 - here, slot.dtype
        )
    else:
        sizes = space.sizes()
        array[index] = np.where(here != other, other, (here + 1) % max(upper(slot, sizes), 2))
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
        wide = a.astype(np.float64)
        scale = float(np.sqrt(np.mean(wide**2))) if a.size else 0.0
        step = (2.0**-23 if a.dtype.itemsize >= 4 else 2.0**-10) * (scale or 1.0)
        worst = max(worst, float(np.abs(wide - b.astype(np.float64)).max(initial=0.0)) / step)
    return worst
