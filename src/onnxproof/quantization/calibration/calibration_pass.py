"""What a pass over the calibration data has seen, and its file: the cache by which an interrupted pass is taken up again."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import InputError
from onnxproof.quantization.calibration.statistics import Histogram, Statistics
from onnxproof.system.writing import write_bytes

Array = np.ndarray[Any, Any]


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

    def range_statistics(self) -> dict[str, Statistics]:
        """Statistics of the batches that ranges are chosen by; the others are held out, to count what the ranges clip there."""
        return {name: stats for name, stats in self.fitted.items() if stats.count}

    def merged_statistics(self) -> dict[str, Statistics]:
        """Statistics of all batches."""
        whole: dict[str, Statistics] = {}
        for part in (self.fitted, self.held):
            for name, stats in part.items():
                whole.setdefault(name, Statistics(axis=stats.axis)).merge(stats)
        return {name: stats for name, stats in whole.items() if stats.count}


def save_pass(state: Pass, path: Path) -> None:
    """Write the pass; the file appears whole or not at all."""
    arrays: dict[str, Array] = {}
    header: dict[str, Any] = {
        "model": state.model_hash,
        "data": state.data_hash,
        "batches": state.batches,
        "samples": state.samples,
        "trail": state.trail,
        "broken": state.broken,
        "fitted": _store_statistics("fitted", state.fitted, arrays),
        "held": _store_statistics("held", state.held, arrays),
    }
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        allow_pickle=False,
        about=np.frombuffer(json.dumps(header).encode(), np.uint8),
        **arrays,
    )
    write_bytes(buffer.getvalue(), path, what="the calibration cache")


def _store_statistics(
    part: str, statistics: Mapping[str, Statistics], arrays: dict[str, Array]
) -> dict[str, Any]:
    """The numbers of each value's statistics; its arrays are added to `arrays`."""
    numbers = {}
    for place, (name, stats) in enumerate(statistics.items()):
        key = f"{part}{place}"
        numbers[name] = {
            "key": key,
            "axis": stats.axis,
            "count": stats.count,
            "low": stats.low,
            "high": stats.high,
            "total": stats.total,
            "squares": stats.squares,
            "sampled": stats.sampled,
            "broken": stats.broken,
            "width": stats.histogram.width,
            "first": stats.histogram.first,
        }
        arrays[f"{key}.counts"] = stats.histogram.counts
        arrays[f"{key}.octaves"] = stats.octaves
        if stats.channel_low is not None and stats.channel_high is not None:
            arrays[f"{key}.low"] = stats.channel_low
            arrays[f"{key}.high"] = stats.channel_high
    return numbers


def load_pass(path: Path | None, model_hash: str) -> tuple[Pass | None, str]:
    """The kept pass of this model, or what is wrong with the file: a damaged one is made again. One of another model is an error."""
    if path is None or not path.is_file():
        return None, ""
    try:
        with np.load(path, allow_pickle=False) as archive:
            header = json.loads(archive["about"].tobytes())
            arrays = {name: archive[name] for name in archive.files if name != "about"}
        state = _restore_pass(header, arrays)
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


def _restore_pass(header: Any, arrays: Mapping[str, Array]) -> Pass:
    return Pass(
        model_hash=str(header["model"]),
        batches=int(header["batches"]),
        samples=int(header["samples"]),
        data_hash=str(header["data"]),
        trail=[(int(count), float(growth)) for count, growth in header["trail"]],
        broken=[str(words) for words in header["broken"]],
        fitted=_restore_statistics(header["fitted"], arrays),
        held=_restore_statistics(header["held"], arrays),
    )


def _restore_statistics(
    numbers: dict[str, dict[str, Any]], arrays: Mapping[str, Array]
) -> dict[str, Statistics]:
    statistics = {}
    for name, stored in numbers.items():
        key = stored.pop("key")
        histogram = Histogram(
            width=stored.pop("width"), first=stored.pop("first"), counts=arrays[f"{key}.counts"]
        )
        statistics[name] = Statistics(
            histogram=histogram,
            octaves=arrays[f"{key}.octaves"],
            channel_low=arrays.get(f"{key}.low"),
            channel_high=arrays.get(f"{key}.high"),
            **stored,
        )
    return statistics
