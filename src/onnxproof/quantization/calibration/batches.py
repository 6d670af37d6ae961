"""The user's data as batches that the graph takes: files, folders, loaders and generators, cut to the batch size that fits."""

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onnxproof.errors import InputError
from onnxproof.inputs import data_stream as user_data
from onnxproof.onnxmodel.onnx_file import Port

Array = np.ndarray[Any, Any]
Batch = tuple[str, dict[str, Array]]
_GAINS, _NOISE = (1.1, 1.0, 0.9), 0.1
"""Of perturbed samples, the noise in their own deviations. On nets trained on digits and calibrated with one image, such inputs keep 16 to 25 dB and the test images
17 to 27, where the image itself keeps 37 to 43; without noise and with smaller gains 25 to 30, with gains of 1.2 only 11 to 20."""
SIZE = 32
"""Samples in one piece: enough for the kernels, small enough that activations stay within a few megabytes."""


def cut(data: Any, ports: Sequence[Port], *, size: int = SIZE) -> Iterator[Batch]:
    """Name and arrays of each piece; what is longer than the graph's batch (or `size`) is cut along the first axis."""
    names = [port.name for port in ports]
    fixed = _fixed_batch(ports)
    for label, arrays in user_data.stream(data, names):
        fed = {port.name: _typed(arrays[port.name], port, label) for port in ports}
        lengths = {a.shape[0] for a in fed.values() if a.ndim}
        rows = lengths.pop() if len(lengths) == 1 else None
        step = fixed or size
        if rows is None or rows <= step or any(a.ndim == 0 for a in fed.values()):
            yield label, fed
            continue
        for start in range(0, rows - (rows % step if fixed else 0), step):
            yield (
                f"{label}[{start}:{min(start + step, rows)}]",
                {name: a[start : start + step] for name, a in fed.items()},
            )


def divided(
    stream: Iterator[Batch], ports: Sequence[Port], parts: int
) -> tuple[Iterator[Batch], int | None]:
    """The stream, and how many batches it has where they are fewer than `parts`: each is divided by rows before, so that some of them can be held out."""
    first = list(itertools.islice(stream, parts))
    if len(first) == parts or not first:
        return itertools.chain(first, stream), None
    pieces = 1 if _fixed_batch(ports) is not None else -(-parts // len(first))
    made = [piece for batch in first for piece in _rows(batch, pieces)]
    return iter(made), len(made) if len(made) < parts else None


def _rows(labelled: Batch, pieces: int) -> Iterator[Batch]:
    """A batch as that many of every n-th row; whole where its inputs do not all have the same rows."""
    label, batch = labelled
    count = samples(batch)
    if pieces == 1 or any(not array.ndim or array.shape[0] != count for array in batch.values()):
        yield labelled
        return
    for start in range(min(pieces, count)):
        yield (
            f"{label}[{start}::{pieces}]",
            {name: array[start::pieces] for name, array in batch.items()},
        )


def perturbed(batches: Sequence[Batch], seed: int = 0) -> list[Batch]:
    """Samples that are like those given and are none of them, for want of held-out ones: a little larger and smaller, with noise."""
    rng = np.random.default_rng(seed)

    def moved(array: Array, gain: float) -> Array:
        if array.dtype.kind != "f" or not array.ndim:
            return array
        return (
            array * gain + rng.standard_normal(array.shape) * _NOISE * float(array.std())
        ).astype(array.dtype)

    return [
        (
            f"{label} times {gain:g}, with noise",
            {name: moved(array, gain) for name, array in batch.items()},
        )
        for label, batch in batches
        for gain in _GAINS
    ]


def samples(batch: Mapping[str, Array]) -> int:
    """How many samples a batch holds."""
    return next((a.shape[0] for a in batch.values() if a.ndim), 1)


def collect(
    data: Any, ports: Sequence[Port], *, most: int = 4096, megabytes: float = 512.0
) -> list[Batch]:
    """The first batches, held in memory: at most so many samples and bytes."""
    found: list[Batch] = []
    held, count = 0.0, 0
    for label, batch in cut(data, ports):
        found.append((label, batch))
        held, count = held + sum(a.nbytes for a in batch.values()) / 1e6, count + samples(batch)
        if count >= most or held >= megabytes:
            break
    return found


def digest(previous: str, batch: Mapping[str, Array]) -> str:
    """A running hash over the batches so far."""
    made = hashlib.sha256(previous.encode())
    for name in sorted(batch):
        made.update(
            name.encode()
            + str((batch[name].dtype, batch[name].shape)).encode()
            + np.ascontiguousarray(batch[name]).tobytes()
        )
    return made.hexdigest()


def peeked(stream: Iterator[Batch], *, what: str) -> Iterator[Batch]:
    """The stream, if anything is in it."""
    first = next(stream, None)
    if first is None:
        raise InputError(
            "no-calibration-data",
            f"the {what} data is empty",
            help="give a few hundred inputs like those the model will be served",
        )
    return itertools.chain([first], stream)


def _fixed_batch(ports: Sequence[Port]) -> int | None:
    sizes = {port.dims[0] for port in ports if port.dims}
    found = next(iter(sizes), None)
    return found if len(sizes) == 1 and isinstance(found, int) else None


def _typed(array: Array, port: Port, label: str) -> Array:
    """The dtype that the graph takes: float64 images become float32, but floats never become integers."""
    wanted = np.dtype(port.dtype)
    if array.dtype == wanted:
        found = array
    elif array.dtype.kind in "fiub" and (
        wanted.kind == "f"
        or array.dtype.kind == wanted.kind
        or (array.dtype.kind in "iu" and wanted.kind in "iu")
    ):
        found = array.astype(wanted)
    else:
        raise InputError(
            "data-dtype",
            f"`{label}` has {array.dtype} for the input `{port.name}`, which takes {wanted}",
        )
    dims = port.dims
    if dims is not None and found.ndim == len(dims) - 1:
        found = found[None]  # one sample without its batch axis
    if dims is not None and (
        found.ndim != len(dims)
        or any(
            isinstance(d, int) and axis and d != found.shape[axis] for axis, d in enumerate(dims)
        )
    ):
        raise InputError(
            "data-shape",
            f"`{label}` has shape {list(found.shape)} for the input `{port.name}`, which takes {list(dims)}",
            help="the data must be what the model is served: after resizing and normalisation, with the batch first",
        )
    return found
