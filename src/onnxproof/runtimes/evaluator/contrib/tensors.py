"""Operators on whole tensors: inverses, spectra, crops, samples, windows, triangles and n-grams."""

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator import sampling
from onnxproof.runtimes.evaluator.contrib.operator import DOMAIN, Contrib
from onnxproof.runtimes.evaluator.precision import widen

Array = np.ndarray[Any, Any]


class Inverse(Contrib):
    """The inverse of every matrix of a batch."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return (np.linalg.inv(widen(x)).astype(x.dtype),)


class Rfft(Contrib):
    """The spectrum of real signals along the last axes; real and imaginary parts are a new last axis."""

    def _run(self, x: Array, signal_ndim: int = 1, **_: Any) -> tuple[Array]:
        spectrum = np.fft.rfftn(widen(x), axes=_last_axes(x.ndim, signal_ndim))
        return (np.stack([spectrum.real, spectrum.imag], axis=-1).astype(x.dtype),)


class Irfft(Contrib):
    """The signal of an even length that has this spectrum."""

    def _run(self, x: Array, signal_ndim: int = 1, **_: Any) -> tuple[Array]:
        spectrum = widen(x)[..., 0] + 1j * widen(x)[..., 1]
        axes = _last_axes(spectrum.ndim, signal_ndim)
        return (np.fft.irfftn(spectrum, axes=axes).astype(x.dtype),)


def _last_axes(rank: int, count: int) -> list[int]:
    return list(range(rank - count, rank))


class CropAndResize(Contrib):
    """Boxes of images, each resized so that its corners are the corner pixels of the crop."""

    def _run(
        self,
        x: Array,
        boxes: Array,
        batch_indices: Array,
        crop_size: Array,
        mode: str = "bilinear",
        extrapolation_value: float = 0.0,
        **_: Any,
    ) -> tuple[Array]:
        height, width = (int(n) for n in crop_size)
        wide = widen(x)
        out = np.full((len(boxes), x.shape[1], height, width), extrapolation_value, wide.dtype)
        for place, (top, left, bottom, right) in enumerate(boxes):
            image = wide[batch_indices[place]]
            rows, inside_rows = _sample(image.shape[1], height, top, bottom, mode)
            columns, inside_columns = _sample(image.shape[2], width, left, right, mode)
            crop = rows @ image @ columns.T
            inside = inside_rows[:, None] & inside_columns
            out[place] = np.where(inside, crop, extrapolation_value)
        return (out.astype(x.dtype),)


def _sample(size: int, count: int, start: float, end: float, mode: str) -> tuple[Array, Array]:
    """The weight of each pixel for each pixel of the crop, along one axis, and whether that lies inside the image."""
    if count > 1:
        places = start * (size - 1) + np.arange(count) * (end - start) * (size - 1) / (count - 1)
    else:
        places = np.full(1, 0.5 * (start + end) * (size - 1))
    inside = (places >= 0) & (places <= size - 1)
    safe = np.where(inside, places, 0)
    matrix = np.zeros((count, size), np.result_type(safe, np.float32))
    if mode == "nearest":
        # Halves are rounded away from 0.
        matrix[np.arange(count), np.floor(safe + 0.5).astype(int)] = 1
        return matrix, inside
    low = np.floor(safe).astype(int)
    high = np.minimum(low + 1, size - 1)
    share = safe - low
    np.add.at(matrix, (np.arange(count), low), 1 - share)
    np.add.at(matrix, (np.arange(count), high), share)
    return matrix, inside


class GridSample(sampling.GridSample):
    """The standard's under an older name, for images alone."""

    op_schema = None
    op_domain = DOMAIN

    def _run(self, x: Array, grid: Array, mode: str = "bilinear", **attributes: Any) -> Any:  # type: ignore[override]
        return super()._run(x, grid, mode=mode, **attributes)


class NGramRepeatBlock(Contrib):
    """Scores of the tokens that would repeat an n-gram of their row become minus infinity."""

    def _run(self, ids: Array, scores: Array, ngram_size: int = 1, **_: Any) -> tuple[Array]:
        out = scores.copy()
        for row, tokens in enumerate(ids.tolist()):
            tail = tokens[len(tokens) - ngram_size + 1 :]
            for start in range(len(tokens) - ngram_size + 1):
                if tokens[start : start + ngram_size - 1] == tail:
                    out[row, tokens[start + ngram_size - 1]] = -np.inf
        return (out,)


class Trilu(Contrib):
    """One triangle of every matrix."""

    def _run(self, x: Array, k: Array | None = None, upper: int = 1, **_: Any) -> tuple[Array]:
        diagonal = 0 if k is None else int(np.asarray(k).reshape(()))
        if upper:
            return (np.triu(x, diagonal),)
        return (np.tril(x, diagonal),)


class UnfoldTensor(Contrib):
    """Windows along one axis, as a new last axis."""

    def _run(self, x: Array, dim: int = -1, size: int = 1, step: int = 1, **_: Any) -> tuple[Array]:
        windows = np.lib.stride_tricks.sliding_window_view(x, size, axis=dim)
        every: list[Any] = [slice(None)] * windows.ndim
        every[dim % x.ndim] = slice(None, None, step)
        return (np.ascontiguousarray(windows[tuple(every)]),)


class CDist(Contrib):
    """The distance of every pair of rows."""

    def _run(self, a: Array, b: Array, metric: str = "sqeuclidean", **_: Any) -> tuple[Array]:
        squares = np.square(widen(a)[:, None] - widen(b)[None]).sum(axis=-1)
        if metric == "euclidean":
            squares = np.sqrt(squares)
        elif metric != "sqeuclidean":
            raise NotImplementedError(f"CDist with the metric `{metric}`")
        return (squares.astype(a.dtype),)


class Pad(Contrib):
    """Pads that are an input, in a row of a matrix or as a vector."""

    def _run(
        self, x: Array, pads: Array, value: Array | None = None, mode: str = "constant", **_: Any
    ) -> tuple[Array]:
        before, after = pads.reshape(2, -1)
        widths = list(zip(before.tolist(), after.tolist(), strict=True))
        if any(low < 0 or high < 0 for low, high in widths):
            raise NotImplementedError("Pad of `com.microsoft` with negative pads")
        if mode != "constant":
            return (np.pad(x, widths, mode=mode),)  # type: ignore[call-overload]
        fill = 0 if value is None else value.reshape(-1)[0]
        return (np.pad(x, widths, constant_values=fill),)


OPERATORS: dict[str, type[OpRun]] = {
    "CDist": CDist,
    "CropAndResize": CropAndResize,
    "GridSample": GridSample,
    "Inverse": Inverse,
    "Irfft": Irfft,
    "NGramRepeatBlock": NGramRepeatBlock,
    "Pad": Pad,
    "Rfft": Rfft,
    "Trilu": Trilu,
    "UnfoldTensor": UnfoldTensor,
}
