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
_GAINS = (1.1, 1.0, 0.9)
_NOISE = 0.1
"""Of perturbed samples, the noise in their own deviations. On nets trained on digits and calibrated with one image, such inputs keep 16 to 25 dB and the test images
17 to 27, where the image itself keeps 37 to 43; without noise and with smaller gains 25 to 30, with gains of 1.2 only 11 to 20."""
SIZE = 32
"""Samples in one piece: enough for the kernels, small enough that activations stay within a few megabytes."""


def split_batches(data: Any, ports: Sequence[Port], *, size: int = SIZE) -> Iterator[Batch]:
    """Name and arrays of each piece; what is longer than the graph's batch (or `size`) is cut along the first axis."""
    names = [port.name for port in ports]
    fixed = _fixed_batch(ports)
    step = fixed or size
    for label, arrays in user_data.stream(data, names):
        batch = {port.name: _convert(arrays[port.name], port, label) for port in ports}
        rows = _common_rows(batch)
        if rows is None or rows <= step:
            yield label, batch
            continue
        if fixed:  # a last piece that is shorter than the graph's batch does not fit
            rows -= rows % step
        for start in range(0, rows, step):
            end = min(start + step, rows)
            piece = {name: array[start:end] for name, array in batch.items()}
            yield f"{label}[{start}:{end}]", piece


def _common_rows(batch: Mapping[str, Array]) -> int | None:
    """The length of the first axis; None where arrays differ in it, or one has no axis."""
    if any(not array.ndim for array in batch.values()):
        return None
    lengths = {array.shape[0] for array in batch.values()}
    return lengths.pop() if len(lengths) == 1 else None


def divide_few_batches(
    stream: Iterator[Batch], ports: Sequence[Port], parts: int
) -> tuple[Iterator[Batch], int | None]:
    """The stream, and how many batches it has where they are fewer than `parts`: each is divided by rows before, so that some of them can be held out."""
    first = list(itertools.islice(stream, parts))
    if len(first) == parts or not first:
        return itertools.chain(first, stream), None
    pieces = 1 if _fixed_batch(ports) is not None else -(-parts // len(first))
    divided = [piece for batch in first for piece in _divide_rows(batch, pieces)]
    count = len(divided) if len(divided) < parts else None
    return iter(divided), count


def _divide_rows(labelled: Batch, pieces: int) -> Iterator[Batch]:
    """A batch as that many of every n-th row; whole where its inputs do not all have the same rows."""
    label, batch = labelled
    count = _common_rows(batch)
    if pieces == 1 or count is None:
        yield labelled
        return
    for start in range(min(pieces, count)):
        piece = {name: array[start::pieces] for name, array in batch.items()}
        yield f"{label}[{start}::{pieces}]", piece


def perturb(batches: Sequence[Batch], seed: int = 0) -> list[Batch]:
    """Samples that are like those given and are none of them, for want of held-out ones: a little larger and smaller, with noise."""
    rng = np.random.default_rng(seed)

    def add_noise(array: Array, gain: float) -> Array:
        if array.dtype.kind != "f" or not array.ndim:
            return array
        noise = rng.standard_normal(array.shape) * _NOISE * float(array.std())
        return (array * gain + noise).astype(array.dtype)

    perturbed = []
    for label, batch in batches:
        for gain in _GAINS:
            arrays = {name: add_noise(array, gain) for name, array in batch.items()}
            perturbed.append((f"{label} times {gain:g}, with noise", arrays))
    return perturbed


def count_samples(batch: Mapping[str, Array]) -> int:
    """How many samples a batch holds."""
    return next((array.shape[0] for array in batch.values() if array.ndim), 1)


def extend_digest(previous: str, batch: Mapping[str, Array]) -> str:
    """A running hash over the batches so far."""
    digest = hashlib.sha256(previous.encode())
    for name in sorted(batch):
        array = batch[name]
        digest.update(name.encode())
        digest.update(str((array.dtype, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def require_batches(stream: Iterator[Batch], *, what: str) -> Iterator[Batch]:
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
    """The batch size that the graph takes alone, where all inputs have the same."""
    sizes = {port.dims[0] for port in ports if port.dims}
    if len(sizes) != 1:
        return None
    size = sizes.pop()
    return size if isinstance(size, int) else None


def _convert(array: Array, port: Port, label: str) -> Array:
    """The dtype and rank that the graph takes: float64 images become float32, but floats never become integers."""
    dtype = np.dtype(port.dtype)
    if array.dtype != dtype:
        if not _is_convertible(array.dtype.kind, dtype.kind):
            raise InputError(
                "data-dtype",
                f"`{label}` has {array.dtype} for the input `{port.name}`, which takes {dtype}",
            )
        array = array.astype(dtype)
    dims = port.dims
    if dims is None:
        return array
    if array.ndim == len(dims) - 1:
        array = array[None]  # one sample without its batch axis
    if array.ndim != len(dims) or not _sizes_fit(array, dims):
        raise InputError(
            "data-shape",
            f"`{label}` has shape {list(array.shape)} for the input `{port.name}`, which takes {list(dims)}",
            help="the data must be what the model is served: after resizing and normalisation, with the batch first",
        )
    return array


def _is_convertible(source: str, target: str) -> bool:
    """By numpy's kinds of dtypes: numbers to floats, and to their own kind; integers to integers."""
    if source not in "fiub":
        return False
    return target == "f" or source == target or (source in "iu" and target in "iu")


def _sizes_fit(array: Array, dims: Sequence[int | str | None]) -> bool:
    """Whether all fixed dims but the batch are those of the array."""
    sizes = zip(array.shape[1:], dims[1:], strict=True)
    return all(not isinstance(dim, int) or dim == size for size, dim in sizes)
