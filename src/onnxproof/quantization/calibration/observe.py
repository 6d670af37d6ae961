"""One pass over the calibration data: the float graph runs with its inner values as outputs, and only statistics stay.

Every fifth batch is kept apart, to count what ranges clip on data that did not choose them; merged, the two are the whole. A pass can be
kept in a file and taken up again: its keys are the hashes of the model and of the data it has seen.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import InputError, Refused
from onnxproof.quantization.calibration.batches import Batch, count_samples, extend_digest
from onnxproof.quantization.calibration.calibration_pass import Pass, load_pass, save_pass
from onnxproof.quantization.calibration.observer import Observer

Array = np.ndarray[Any, Any]
ReportProgress = Callable[[str, int], None]
"""What is done, and how many samples so far."""
HELD_OUT = 5
"""Every fifth batch is held out."""
_SAVED_EVERY = 64
"""Batches between two writes of the cache (not measured)."""
_LONGEST_TRAIL = 256
"""Growths that are kept; beyond it every second one is dropped."""


def is_held_out(place: int, batch_count: int | None = None) -> bool:
    """True for the batches that no range and no recipe sees; where fewer than five are known to come (`batch_count`), it is the last of several."""
    if batch_count is not None:
        return batch_count > 1 and place == batch_count - 1
    return place % HELD_OUT == HELD_OUT - 1


def observe(
    observer: Observer,
    stream: Iterator[Batch],
    *,
    cache: Path | None = None,
    report_progress: ReportProgress | None = None,
    batch_count: int | None = None,
) -> Pass:
    """Run the pass, or take it up where the cache left it; `batch_count` as `is_held_out` takes it.

    1. Batches that the cached pass has seen are only hashed; after the last of them the hash must be the cache's.
    2. Every other batch is added to the statistics.
    3. A cache of more data than was given is an error, as is a pass without any usable sample.
    """
    cached, damage = load_pass(cache, observer.hash)
    state = Pass(model_hash=observer.hash, rebuilt=damage)
    data_hash = ""
    for place, (label, batch) in enumerate(stream):
        data_hash = extend_digest(data_hash, batch)
        if cached is not None and place < cached.batches:  # step 1
            if place == cached.batches - 1:
                if data_hash != cached.data_hash:
                    raise _other_cache(cache, "this calibration cache was made from other data")
                state = cached
            continue
        held = is_held_out(state.batches, batch_count)
        _add_batch(state, observer, label, batch, held=held)  # step 2
        state.batches = place + 1
        state.samples += count_samples(batch)
        state.data_hash = data_hash
        if report_progress is not None:
            report_progress("calibration", state.samples)
        if cache is not None and state.batches % _SAVED_EVERY == 0:
            save_pass(state, cache)
    if cached is not None and state is not cached:  # step 3
        raise _other_cache(cache, "this calibration cache was made from more data than was given")
    _require_values(state)
    if cache is not None:
        save_pass(state, cache)
    return state


def _other_cache(cache: Path | None, what: str) -> InputError:
    return InputError("other-cache", what, where=str(cache), help="delete it, or name another file")


def _require_values(state: Pass) -> None:
    if any(stats.count for stats in state.fitted.values()):
        return
    notes = []
    if state.broken:
        notes.append(f"left out, since not finite: {', '.join(state.broken[:5])}")
    raise InputError(
        "no-calibration-data",
        "no calibration sample could be used",
        notes=notes,
        help="give a few hundred inputs like those that are served",
    )


def _add_batch(
    state: Pass, observer: Observer, label: str, batch: Mapping[str, Array], *, held: bool
) -> None:
    """Add a batch to the fitted statistics or to the held-out ones; one with an input that is not finite is left out."""
    for name, array in batch.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            state.broken.append(f"{label}{_first_broken_row(array)}: the input `{name}`")
            return
    widths = {name: stats.high - stats.low for name, stats in state.fitted.items()}
    try:
        not_finite = observer.observe_batch(
            batch, state.held if held else state.fitted, label, state.batches
        )
    except Refused as why:
        raise InputError(
            "data-refused", f"the model refuses the calibration sample `{label}`", notes=[why.what]
        ) from why
    if not_finite:
        state.broken.append(f"{label}: `{not_finite}` is not finite")
    if not held and widths:
        state.trail.append((state.samples, _mean_growth(state, widths)))
        if len(state.trail) > _LONGEST_TRAIL:
            state.trail = state.trail[::2]


def _mean_growth(state: Pass, widths: Mapping[str, float]) -> float:
    """How much the ranges have grown on average, as a share of what they are now."""
    growths = [
        1 - widths[name] / (stats.high - stats.low)
        for name, stats in state.fitted.items()
        if stats.high > stats.low and np.isfinite(widths.get(name, np.nan))
    ]
    return float(np.mean(growths)) if growths else 0.0


def _first_broken_row(array: Array) -> str:
    if not array.ndim:
        return ""
    finite = np.isfinite(array.reshape(len(array), -1)).all(1)
    rows = np.flatnonzero(~finite)
    return f" row {int(rows[0])}" if rows.size else ""
