"""One pass over the calibration data: the float graph runs with its inner values as outputs, and only statistics stay.

Every fifth batch is watched apart, so that ranges can be asked what they clip on data they have not seen; merged, the two are the
whole. A pass can be kept in a file and taken up again: it is keyed by the hashes of the model and of the data it has seen.
"""

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import InputError, Refused
from onnxproof.quantization.calibration.batches import Batch, digest, samples
from onnxproof.quantization.calibration.statistics import SAMPLED, Histogram, Statistics
from onnxproof.quantization.float_graph import Index, copied
from onnxproof.runtimes import ort
from onnxproof.runtimes.reference import add_outputs
from onnxproof.system.writing import write_bytes

Array = np.ndarray[Any, Any]
Tell = Callable[[str, int], None]
"""Progress: what is done, and how many samples so far."""
HELD_OUT = 5
"""Every fifth batch is watched apart."""
_SAVED_EVERY = 64


def held_out(place: int, few: int | None = None) -> bool:
    """True for the batches that no range and no recipe sees; `few` is the number of batches where they are fewer than five: then it is the last of several."""
    if few is not None:
        return few > 1 and place == few - 1
    return place % HELD_OUT == HELD_OUT - 1


@dataclass(slots=True, kw_only=True)
class Pass:
    """What a pass over the data has seen."""

    model_hash: str
    fitted: dict[str, Statistics] = field(default_factory=dict)
    held: dict[str, Statistics] = field(default_factory=dict)
    batches: int = 0
    samples: int = 0
    data_hash: str = ""
    trail: list[tuple[int, float]] = field(default_factory=list)
    """(samples, how much the ranges have grown on average since the last doubling): whether more data would still move them."""
    broken: list[str] = field(default_factory=list)
    """Samples that were left out since an input or an inner value was not finite."""
    rebuilt: str = ""
    """Why a cache that was there could not be used."""

    def chosen(self) -> dict[str, Statistics]:
        """Statistics of the batches that ranges are chosen by: the others stay unseen, so that ranges can be asked what they clip there."""
        return {name: stats for name, stats in self.fitted.items() if stats.count}

    def merged(self) -> dict[str, Statistics]:
        """Statistics of all batches."""
        whole: dict[str, Statistics] = {}
        for part in (self.fitted, self.held):
            for name, stats in part.items():
                whole.setdefault(name, Statistics(axis=stats.axis)).merge(stats)
        return {name: stats for name, stats in whole.items() if stats.count}


class Observer:
    """The float graph with its inner values as outputs."""

    def __init__(self, model: onnx.ModelProto, names: list[str] | None = None) -> None:
        index = Index(model)
        self.names = index.float_values() if names is None else names
        self.axes = {name: index.channel_axis(name) for name in self.names}
        self.hash = hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
        watched = copied(model)
        self._inner = [name for name in self.names if name not in index.inputs]
        ranks = _ranks(model)
        for place, name in enumerate(self._inner):
            self.axes[name] = _channels(watched, place, name, self.axes[name], ranks.get(name))
        turn = onnx.helper.make_tensor_value_info(_TURN, onnx.TensorProto.INT64, [1])
        watched.graph.input.append(turn)
        self._outputs = [value.name for value in model.graph.output]
        wanted = [f"{_MINE}{place}.{part}" for place in range(len(self._inner)) for part in _PARTS]
        add_outputs(watched, wanted)
        self._session = ort.open(
            watched.SerializeToString(), "basic", outputs=[*wanted, *self._outputs]
        )

    def look(
        self, batch: Mapping[str, Array], into: dict[str, Statistics], label: str, turn: int
    ) -> str:
        """Add one batch to the statistics; gives the name of a value that was not finite, if one was."""
        found = self._session.run({**batch, _TURN: np.asarray([turn])})
        for name in self.names:
            if name not in into:
                into[name] = Statistics(axis=self.axes[name])
            if name in batch:
                into[name].update(batch[name], label, turn)
        for place, name in enumerate(self._inner):
            lows, highs, picked, stride = found[4 * place : 4 * place + 4]
            if (
                picked is not None
                and lows is not None
                and highs is not None
                and stride is not None
                and picked.size
            ):
                if (
                    lows.ndim == 2
                ):  # the runtime is quick over the places of an image, and numpy over the few that are left
                    lows, highs = lows.min(0), highs.max(0)
                into[name].take(lows, highs, picked, int(stride[0]), label)
        answers = zip(self._outputs, found[4 * len(self._inner) :], strict=True)
        return next(
            (
                name
                for name, array in answers
                if array is not None and array.dtype.kind == "f" and not np.isfinite(array).all()
            ),
            "",
        )


_MINE = "onnxproof.watch."
_TURN = "onnxproof.turn"
_PARTS = ("low", "high", "picked", "stride")


def _ranks(model: onnx.ModelProto) -> dict[str, int]:
    return {
        v.name: len(v.type.tensor_type.shape.dim)
        for v in (*model.graph.value_info, *model.graph.output)
        if v.type.tensor_type.HasField("shape")
    }


def _channels(
    model: onnx.ModelProto, place: int, value: str, axis: int | None, rank: int | None
) -> int | None:
    """Let the graph itself take the extremes and every n-th element of a value: only a few thousand numbers leave it. Gives the channels' axis."""
    name, make = f"{_MINE}{place}.", onnx.helper.make_node
    axis = None if rank is None or rank < 2 or axis is None else axis
    axes = (
        None
        if rank is None or axis is None
        else [*range(2, rank)]
        if axis == 1 and rank > 2
        else [*range(rank - 1)]
    )
    if axes is not None and axis == 1 and rank == 2:
        axes = [0]
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    constants = {"one": [1], "flat": [-1], "zero": [0], "most": [SAMPLED], "end": [2**62]} | (
        {"axes": axes} if axes is not None else {}
    )
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(v, np.int64), name + k)
        for k, v in constants.items()
    )
    reduce: dict[str, Any] = {"keepdims": 0} | (
        {"axes": axes} if axes is not None and opset < 18 else {}
    )
    inputs = [value, *([f"{name}axes"] if axes is not None and opset >= 18 else [])]
    model.graph.node.extend(
        [
            make("ReduceMin", inputs, [name + "low"], **reduce),
            make("ReduceMax", inputs, [name + "high"], **reduce),
            make("Size", [value], [name + "size"]),
            make("Div", [name + "size", name + "most"], [name + "share"]),
            make("Max", [name + "share", name + "one"], [name + "stride"]),
            make("Mod", [_TURN, name + "stride"], [name + "start"]),
            make("Reshape", [value, name + "flat"], [name + "line"]),
            make(
                "Slice",
                [name + "line", name + "start", name + "end", name + "zero", name + "stride"],
                [name + "picked"],
            ),
        ]
    )
    return axis


def observe(
    observer: Observer,
    stream: Iterator[Batch],
    *,
    cache: Path | None = None,
    tell: Tell | None = None,
    few: int | None = None,
) -> Pass:
    """Run the pass, or take it up where the cache left it; `few` as `held_out` takes it."""
    done, damage = _load(cache, observer.hash)
    state = Pass(model_hash=observer.hash, rebuilt=damage)
    seen = ""
    for place, (label, batch) in enumerate(stream):
        seen = digest(seen, batch)
        if done is not None and place < done.batches:
            if place == done.batches - 1:
                if seen != done.data_hash:
                    raise InputError(
                        "other-cache",
                        "this calibration cache was made from other data",
                        where=str(cache),
                        help="delete it, or name another file",
                    )
                state = done
            continue
        _take(state, observer, label, batch, held=held_out(state.batches, few))
        state.batches, state.samples, state.data_hash = (
            place + 1,
            state.samples + samples(batch),
            seen,
        )
        if tell is not None:
            tell("calibration", state.samples)
        if cache is not None and state.batches % _SAVED_EVERY == 0:
            save(state, cache)
    if done is not None and state is not done:
        raise InputError(
            "other-cache",
            "this calibration cache was made from more data than was given",
            where=str(cache),
            help="delete it, or name another file",
        )
    if not state.fitted or not any(s.count for s in state.fitted.values()):
        notes = (
            [f"left out, since not finite: {', '.join(state.broken[:5])}"] if state.broken else []
        )
        raise InputError(
            "no-calibration-data",
            "no calibration sample could be used",
            notes=notes,
            help="give a few hundred inputs like those that are served",
        )
    if cache is not None:
        save(state, cache)
    return state


def _take(
    state: Pass, observer: Observer, label: str, batch: Mapping[str, Array], *, held: bool
) -> None:
    odd = next(
        (name for name, a in batch.items() if a.dtype.kind == "f" and not np.isfinite(a).all()),
        None,
    )
    if odd is not None:
        state.broken.append(f"{label}{_rows(batch[odd])}: the input `{odd}`")
        return
    part = state.held if held else state.fitted
    before = {name: stats.high - stats.low for name, stats in state.fitted.items()}
    try:
        bad = observer.look(batch, part, label, state.batches)
    except Refused as why:
        raise InputError(
            "data-refused", f"the model refuses the calibration sample `{label}`", notes=[why.what]
        ) from why
    if bad:
        state.broken.append(f"{label}: `{bad}` is not finite")
    if not held and before:
        grown = [
            1 - before[n] / (s.high - s.low)
            for n, s in state.fitted.items()
            if s.high > s.low and n in before and np.isfinite(before[n])
        ]
        state.trail.append((state.samples, float(np.mean(grown)) if grown else 0.0))
        if len(state.trail) > 256:
            state.trail = state.trail[::2]


def _rows(array: Array) -> str:
    rows = (
        np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(1))
        if array.ndim
        else np.zeros(0, np.int64)
    )
    return f" row {int(rows[0])}" if rows.size else ""


def save(state: Pass, path: Path) -> None:
    """Write the pass; the file appears whole or not at all."""
    arrays: dict[str, Array] = {}
    about: dict[str, Any] = {
        "model": state.model_hash,
        "data": state.data_hash,
        "batches": state.batches,
        "samples": state.samples,
        "trail": state.trail,
        "broken": state.broken,
    }
    for part, found in (("fitted", state.fitted), ("held", state.held)):
        about[part] = {}
        for place, (name, s) in enumerate(found.items()):
            key = f"{part}{place}"
            about[part][name] = {
                "key": key,
                "axis": s.axis,
                "count": s.count,
                "low": s.low,
                "high": s.high,
                "total": s.total,
                "squares": s.squares,
                "sampled": s.sampled,
                "broken": s.broken,
                "width": s.histogram.width,
                "first": s.histogram.first,
            }
            arrays[f"{key}.counts"], arrays[f"{key}.octaves"] = s.histogram.counts, s.octaves
            if s.channel_low is not None and s.channel_high is not None:
                arrays[f"{key}.low"], arrays[f"{key}.high"] = s.channel_low, s.channel_high
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        allow_pickle=False,
        about=np.frombuffer(json.dumps(about).encode(), np.uint8),
        **arrays,
    )
    write_bytes(buffer.getvalue(), path, what="the calibration cache")


def _load(path: Path | None, model_hash: str) -> tuple[Pass | None, str]:
    """The kept pass of this model, or what is wrong with the file: a damaged one is made again. One of another model is an error."""
    if path is None or not path.is_file():
        return None, ""
    try:
        with np.load(path, allow_pickle=False) as archive:
            about = json.loads(archive["about"].tobytes())
            arrays = {name: archive[name] for name in archive.files if name != "about"}
        state = _restored(about, arrays)
    except Exception as why:  # damaged archives raise half a dozen classes
        return None, f"{type(why).__name__}: {' '.join(str(why).split())[:120]}"
    if state.model_hash != model_hash:
        raise InputError(
            "other-cache",
            "this calibration cache was made from another model",
            where=str(path),
            help="delete it, or name another file",
        )
    return state, ""


def _restored(about: Any, arrays: Mapping[str, Array]) -> Pass:
    state = Pass(
        model_hash=str(about["model"]),
        batches=int(about["batches"]),
        samples=int(about["samples"]),
        data_hash=str(about["data"]),
        trail=[(int(count), float(growth)) for count, growth in about["trail"]],
        broken=[str(words) for words in about["broken"]],
    )
    for part in ("fitted", "held"):
        for name, s in about[part].items():
            key = s.pop("key")
            histogram = Histogram(
                width=s.pop("width"), first=s.pop("first"), counts=arrays[f"{key}.counts"]
            )
            getattr(state, part)[name] = Statistics(
                histogram=histogram,
                octaves=arrays[f"{key}.octaves"],
                channel_low=arrays.get(f"{key}.low"),
                channel_high=arrays.get(f"{key}.high"),
                **s,
            )
    return state
