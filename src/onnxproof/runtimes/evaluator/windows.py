"""Operators that slide a window or sample a grid, in whole-array numpy: onnx's evaluator loops over every output element."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]
Ints = Sequence[int] | None
Places = Iterator[tuple[tuple[int, ...], Array]]
"""Places of a kernel, each with the elements that it meets."""


def convolve(
    x: Array,
    w: Array,
    bias: Array | None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = None,
    group: int = 1,
    pads: Ints = None,
    strides: Ints = None,
    **_: Any,
) -> Array:
    """A convolution of any rank: one matrix product for each place of the kernel, so that no im2col copy is made."""
    rank = x.ndim - 2
    strides, dilations = list(strides or (1,) * rank), list(dilations or (1,) * rank)
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    low, high = _pads(x.shape[2:], spans, strides, pads, auto_pad)
    sizes = [
        (n + a + b - span) // s + 1
        for n, a, b, span, s in zip(x.shape[2:], low, high, spans, strides, strict=True)
    ]
    padded = (
        np.pad(x, [(0, 0), (0, 0), *zip(low, high, strict=True)]) if any(low) or any(high) else x
    )
    out = np.zeros((x.shape[0], group, w.shape[0] // group, math.prod(sizes)), x.dtype)
    weights = w.reshape(group, w.shape[0] // group, *w.shape[1:])
    for place, view in _places(padded, w.shape[2:], sizes, strides, dilations):
        columns = view.reshape(x.shape[0], group, x.shape[1] // group, math.prod(sizes))
        at = _at(weights, place)
        for one in range(
            group
        ):  # group by group: the product of a whole depthwise layer is as large as its output
            out[:, one] += (
                at[one] * columns[:, one] if columns.shape[2] == 1 else at[one] @ columns[:, one]
            )
    shaped = out.reshape(x.shape[0], w.shape[0], *sizes)
    if bias is not None:
        shaped += bias.reshape(-1, *(1,) * rank)
    return shaped


class Conv(OpRun):
    """Right in the evaluator, but slow, and its im2col copy of a large image does not fit in memory."""

    def _run(
        self, x: Array, w: Array, bias: Array | None = None, **attributes: Any
    ) -> tuple[Array]:
        wide = np.promote_types(x.dtype, np.float32)
        return (
            convolve(
                x.astype(wide, copy=False), w.astype(wide, copy=False), bias, **attributes
            ).astype(x.dtype, copy=False),
        )


class ConvTranspose(OpRun):
    """The evaluator raises, or mixes the channels up, when `group` is not 1, and loops in Python."""

    def _run(
        self,
        x: Array,
        w: Array,
        bias: Array | None = None,
        auto_pad: str = "NOTSET",
        dilations: Ints = None,
        group: int = 1,
        output_padding: Ints = None,
        output_shape: Ints = None,
        pads: Ints = None,
        strides: Ints = None,
        **_: Any,
    ) -> tuple[Array]:
        rank = x.ndim - 2
        strides, dilations, extra = (
            list(strides or (1,) * rank),
            list(dilations or (1,) * rank),
            list(output_padding or (0,) * rank),
        )
        full = [
            (n - 1) * s + (k - 1) * d + 1
            for n, s, k, d in zip(x.shape[2:], strides, w.shape[2:], dilations, strict=True)
        ]
        low, high = _split(pads, rank)
        if auto_pad.startswith("SAME") or output_shape:
            wanted = (
                list(output_shape)[-rank:]
                if output_shape
                else [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
            )
            total = [
                f + e - n for f, e, n in zip(full, extra, wanted, strict=True)
            ]  # negative: the output reaches further than the windows
            low, high = [t // 2 for t in total], [t - t // 2 for t in total]
            if auto_pad != "SAME_UPPER":
                low, high = high, low
        before = [max(0, -a) for a in low]
        room = [
            f + e + more + max(0, -b)
            for f, e, more, b in zip(full, extra, before, high, strict=True)
        ]
        out = np.zeros(
            (x.shape[0], group, w.shape[1], *room), np.promote_types(x.dtype, np.float32)
        )
        columns = x.reshape(x.shape[0], group, x.shape[1] // group, math.prod(x.shape[2:]))
        weights = w.reshape(group, x.shape[1] // group, *w.shape[1:]).swapaxes(1, 2)
        for place in itertools.product(*map(range, w.shape[2:])):
            starts = [p * d + more for p, d, more in zip(place, dilations, before, strict=True)]
            target: Any = (
                ...,
                *(
                    slice(a, a + (n - 1) * s + 1 if n else a, s)
                    for a, n, s in zip(starts, x.shape[2:], strides, strict=True)
                ),
            )
            product = _at(weights, place) @ columns
            out[target] += product.reshape(*product.shape[:3], *x.shape[2:])
        crop: Any = (
            ...,
            *(slice(max(0, a), r - max(0, b)) for a, b, r in zip(low, high, room, strict=True)),
        )
        shaped = out.reshape(x.shape[0], group * w.shape[1], *room)[crop]
        return (
            (shaped if bias is None else shaped + bias.reshape(-1, *(1,) * rank)).astype(x.dtype),
        )


class _Pool(OpRun):
    """Common to the pools: where the windows lie."""

    def _windows(
        self,
        x: Array,
        kernel: Sequence[int],
        fill: Any,
        *,
        auto_pad: str,
        ceil_mode: int,
        dilations: Ints,
        pads: Ints,
        strides: Ints,
    ) -> tuple[list[int], list[int], list[int], Places]:
        rank = x.ndim - 2
        strides, dilations = list(strides or (1,) * rank), list(dilations or (1,) * rank)
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        low, high = _pads(x.shape[2:], spans, strides, pads, auto_pad)
        sizes = [
            _pooled(n, a, b, span, s, ceil_mode)
            for n, a, b, span, s in zip(x.shape[2:], low, high, spans, strides, strict=True)
        ]
        room = [
            max(0, (o - 1) * s + span - n - a)
            for o, s, span, n, a in zip(sizes, strides, spans, x.shape[2:], low, strict=True)
        ]
        padded = np.pad(x, [(0, 0), (0, 0), *zip(low, room, strict=True)], constant_values=fill)
        return sizes, low, high, _places(padded, kernel, sizes, strides, dilations)


class MaxPool(_Pool):
    """The evaluator loses NaN and loops in Python (0.3 s for a stem's pool)."""

    def _run(
        self,
        x: Array,
        kernel_shape: Sequence[int] = (),
        storage_order: int = 0,
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        dilations: Ints = None,
        pads: Ints = None,
        strides: Ints = None,
        **_: Any,
    ) -> tuple[Array, ...]:
        lowest = -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min
        sizes, low, _high, places = self._windows(
            x,
            kernel_shape,
            lowest,
            auto_pad=auto_pad,
            ceil_mode=ceil_mode,
            dilations=dilations,
            pads=pads,
            strides=strides,
        )
        if len(self.onnx_node.output) < 2:
            best: Array | None = None
            for _place, view in places:
                best = view.copy() if best is None else np.maximum(best, view, out=best)
            assert best is not None
            return (best,)
        return self._with_indices(x, sizes, low, list(places), strides, dilations, storage_order)

    def _with_indices(
        self,
        x: Array,
        sizes: Sequence[int],
        low: Sequence[int],
        places: Sequence[tuple[tuple[int, ...], Array]],
        strides: Ints,
        dilations: Ints,
        storage_order: int,
    ) -> tuple[Array, ...]:
        rank = x.ndim - 2
        stacked = np.stack([view for _, view in places])
        first = stacked.argmax(axis=0)
        offsets = np.array([place for place, _ in places])[first]
        flat = np.arange(x.shape[0] * x.shape[1]).reshape(
            x.shape[0], x.shape[1], *(1,) * rank
        ) * math.prod(x.shape[2:])
        steps = (
            np.cumprod([1, *x.shape[2:][::-1]])[:-1][::-1]
            if not storage_order
            else np.cumprod([1, *x.shape[2:]])[:-1]
        )
        for axis, (s, d) in enumerate(
            zip(strides or (1,) * rank, dilations or (1,) * rank, strict=True)
        ):
            start = (np.arange(sizes[axis]) * s - low[axis]).reshape(
                [-1 if a == axis else 1 for a in range(rank)]
            )
            flat = flat + (start + offsets[..., axis] * d) * steps[axis]
        return stacked.max(axis=0), flat.astype(np.int64)


class AveragePool(_Pool):
    """Right in the evaluator, but it loops in Python over every window."""

    def _run(
        self,
        x: Array,
        kernel_shape: Sequence[int] = (),
        count_include_pad: int = 0,
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        dilations: Ints = None,
        pads: Ints = None,
        strides: Ints = None,
        **_: Any,
    ) -> tuple[Array]:
        rank = x.ndim - 2
        wide = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
        sizes, low, high, places = self._windows(
            wide,
            kernel_shape,
            0,
            auto_pad=auto_pad,
            ceil_mode=ceil_mode,
            dilations=dilations,
            pads=pads,
            strides=strides,
        )
        total = np.asarray(sum(view for _, view in places))
        for axis, (s, d) in enumerate(
            zip(strides or (1,) * rank, dilations or (1,) * rank, strict=True)
        ):
            met = (np.arange(sizes[axis]) * s - low[axis])[:, None] + np.arange(
                kernel_shape[axis]
            ) * d
            # What the file pads may count; what `ceil_mode` adds behind it never does.
            counted = (
                met < x.shape[2 + axis] + high[axis]
                if count_include_pad
                else (met >= 0) & (met < x.shape[2 + axis])
            )
            total = total / counted.sum(axis=1).reshape(
                [-1 if a == axis else 1 for a in range(rank)]
            ).astype(wide.dtype)
        return (total.astype(x.dtype),)


class LpPool(_Pool):
    """Right in the evaluator, but it loops in Python over every window."""

    def _run(
        self,
        x: Array,
        kernel_shape: Sequence[int] = (),
        p: int = 2,
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        dilations: Ints = None,
        pads: Ints = None,
        strides: Ints = None,
        **_: Any,
    ) -> tuple[Array]:
        powers = np.abs(x) ** p
        places = self._windows(
            powers,
            kernel_shape,
            0,
            auto_pad=auto_pad,
            ceil_mode=ceil_mode,
            dilations=dilations,
            pads=pads,
            strides=strides,
        )[3]
        return (np.asarray(sum(view for _, view in places) ** (1.0 / p)).astype(x.dtype),)


def _places(
    padded: Array,
    kernel: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Places:
    """For each place of the kernel, the elements that it meets in all windows at once (a view)."""
    for place in itertools.product(*map(range, kernel)):
        ranges = zip(place, dilations, sizes, strides, strict=True)
        window: Any = (
            ...,
            *(slice(p * d, p * d + (n - 1) * s + 1 if n else 0, s) for p, d, n, s in ranges),
        )
        yield place, padded[window]


def _at(weights: Array, place: tuple[int, ...]) -> Array:
    """The matrix of each group at one place of the kernel."""
    index: Any = (slice(None), slice(None), slice(None), *place)
    return np.asarray(weights[index])


def _split(pads: Ints, rank: int) -> tuple[list[int], list[int]]:
    pads = list(pads or (0,) * (2 * rank))
    return pads[:rank], pads[rank:]


def _pads(
    shape: Sequence[int], spans: Sequence[int], strides: Sequence[int], pads: Ints, auto_pad: str
) -> tuple[list[int], list[int]]:
    if auto_pad.startswith("SAME"):
        return _same_pads(shape, spans, strides, auto_pad)
    return _split(pads if auto_pad == "NOTSET" else None, len(shape))


def _same_pads(
    shape: Sequence[int], spans: Sequence[int], strides: Sequence[int], auto_pad: str
) -> tuple[list[int], list[int]]:
    total = [
        max(0, (-(-n // s) - 1) * s + span - n)
        for n, span, s in zip(shape, spans, strides, strict=True)
    ]
    less, more = [t // 2 for t in total], [t - t // 2 for t in total]
    return (less, more) if auto_pad == "SAME_UPPER" else (more, less)


def _pooled(size: int, low: int, high: int, span: int, stride: int, ceil_mode: int) -> int:
    room = size + low + high - span
    if not ceil_mode:
        return room // stride + 1
    count = -(-room // stride) + 1
    return (
        count - 1 if (count - 1) * stride >= size + low else count
    )  # a window must begin inside the input or its left pad


class Resize(OpRun):
    """The evaluator sizes the output in float64 (0.7 of 10 is 6 there and 7 everywhere else) and mixes float32 into cubic weights."""

    def _run(
        self,
        x: Array,
        roi: Array | None = None,
        scales: Array | None = None,
        sizes: Array | None = None,
        **attributes: Any,
    ) -> tuple[Array]:
        return (_resize(x, roi, scales, sizes, **attributes),)


class ScaledResize(OpRun):
    """Upsample and the Resize of opset 10: the evaluator knows only whole factors of the nearest pixel."""

    op_schema = onnx.defs.get_schema("Resize", 10)

    def _run(
        self, x: Array, scales: Array | None = None, *_inputs: Any, mode: str = "nearest", **_: Any
    ) -> tuple[Array]:
        return (
            _resize(
                x,
                None,
                scales,
                None,
                mode=mode,
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            ),
        )


def _resize(
    x: Array,
    roi: Array | None,
    scales: Array | None,
    sizes: Array | None,
    *,
    antialias: int = 0,
    axes: Ints = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
    **_: Any,
) -> Array:
    chosen = [axis % x.ndim for axis in axes] if axes else list(range(x.ndim))
    lengths, factors = _resized(
        [x.shape[axis] for axis in chosen], scales, sizes, keep_aspect_ratio_policy
    )
    corners = (
        np.asarray(roi, np.float64).reshape(2, -1) if roi is not None and np.size(roi) else None
    )
    out = x.astype(
        np.promote_types(x.dtype, np.float64)
        if x.dtype.kind in "iu"
        else np.promote_types(x.dtype, np.float32),
        copy=False,
    )
    for place, axis in enumerate(chosen):
        corner = None if corners is None else (float(corners[0, place]), float(corners[1, place]))
        if (
            lengths[place] == x.shape[axis]
            and factors[place] == 1.0
            and (corner is None or coordinate_transformation_mode != "tf_crop_and_resize")
        ):
            continue
        at = _coordinates(
            coordinate_transformation_mode, x.shape[axis], lengths[place], factors[place], corner
        )
        matrix = _taps(
            at,
            x.shape[axis],
            factors[place],
            mode,
            nearest_mode,
            cubic_coeff_a,
            antialias,
            exclude_outside,
        )
        out = np.moveaxis(
            np.tensordot(out, matrix.astype(out.dtype, copy=False), axes=(axis, 1)), -1, axis
        )
        if coordinate_transformation_mode == "tf_crop_and_resize":
            outside = (at < 0) | (at > x.shape[axis] - 1)
            np.moveaxis(out, axis, 0)[outside] = extrapolation_value
    return np.asarray(
        onnx.numpy_helper.saturate_cast(np.rint(out), x.dtype)
        if x.dtype.kind in "iu"
        else out.astype(x.dtype)
    )


def _resized(
    shape: Sequence[int], scales: Array | None, sizes: Array | None, policy: str
) -> tuple[list[int], list[float]]:
    """Lengths and factors of the axes. Runtimes multiply in float32, and one pixel more or less is another shape."""
    if sizes is None or not np.size(sizes):
        assert scales is not None
        factors = [float(s) for s in np.asarray(scales).reshape(-1)]
        return [
            int(np.floor(np.float32(n) * np.float32(s)))
            for n, s in zip(shape, factors, strict=True)
        ], factors
    lengths = [int(n) for n in np.asarray(sizes).reshape(-1)]
    factors = [new / old if old else 1.0 for new, old in zip(lengths, shape, strict=True)]
    if policy == "stretch":
        return lengths, factors
    factor = min(factors) if policy == "not_larger" else max(factors)
    return [int(factor * n + 0.5) for n in shape], [factor] * len(shape)


def _coordinates(
    kind: str, old: int, new: int, scale: float, corner: tuple[float, float] | None
) -> Array:
    """Where each pixel of the output lies in the input."""
    x = np.arange(new, dtype=np.float64)
    if kind == "align_corners":
        return x * (old - 1) / (new - 1) if new > 1 else np.zeros(new)
    if kind == "asymmetric":
        return x / scale
    if kind == "tf_crop_and_resize":
        start, end = corner or (0.0, 1.0)
        if new == 1:
            return np.full(1, 0.5 * (start + end) * (old - 1))
        return start * (old - 1) + x * (end - start) * (old - 1) / (new - 1)
    if kind == "pytorch_half_pixel" and new == 1:
        return np.zeros(1)
    offset = old / 2 * (1 - new / (scale * old)) if kind == "half_pixel_symmetric" else 0.0
    return offset + (x + 0.5) / scale - 0.5


def _taps(
    at: Array,
    size: int,
    scale: float,
    mode: str,
    nearest: str,
    a: float,
    antialias: int,
    exclude_outside: int,
) -> Array:
    """The weight of each input pixel for each output pixel, as a matrix."""
    matrix = np.zeros((at.size, size))
    if mode == "nearest":
        ways = {
            "round_prefer_floor": np.ceil(at - 0.5),
            "round_prefer_ceil": np.floor(at + 0.5),
            "floor": np.floor(at),
            "ceil": np.ceil(at),
        }
        matrix[np.arange(at.size), np.clip(ways[nearest], 0, size - 1).astype(np.int64)] = 1.0
        return matrix
    shrink = min(scale, 1.0) if antialias else 1.0
    reach = math.ceil((2 if mode == "cubic" else 1) / shrink)
    index = np.floor(at).astype(np.int64)[:, None] + np.arange(-reach, reach + 2)
    distance = np.abs(index - at[:, None]) * shrink
    weight = _cubic(distance, a) if mode == "cubic" else np.clip(1.0 - distance, 0.0, None)
    if exclude_outside:
        weight = np.where((index < 0) | (index >= size), 0.0, weight)
    if exclude_outside or antialias:
        weight = weight / weight.sum(axis=1, keepdims=True)
    np.add.at(matrix, (np.arange(at.size)[:, None], np.clip(index, 0, size - 1)), weight)
    return matrix


def _cubic(distance: Array, a: float) -> Array:
    d = distance
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


class GridSample(OpRun):
    """The evaluator holds coordinates in float32, clamps before a cubic window instead of within it, and loops in Python."""

    def _run(
        self,
        x: Array,
        grid: Array,
        mode: str = "linear",
        padding_mode: str = "zeros",
        align_corners: int = 0,
        **_: Any,
    ) -> tuple[Array]:
        wide = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
        lengths = x.shape[2:]
        at = [
            _unnormalized(grid[..., -1 - k].astype(wide.dtype), n, align_corners)
            for k, n in enumerate(lengths)
        ]
        if "cubic" not in mode and padding_mode != "zeros":
            at = [
                np.clip(_bounded(c, n, padding_mode, align_corners), 0, n - 1)
                for c, n in zip(at, lengths, strict=True)
            ]
        taps = [_grid_taps(c, mode) for c in at]
        out = np.zeros((x.shape[0], x.shape[1], *grid.shape[1:-1]), wide.dtype)
        batch = np.arange(x.shape[0]).reshape(-1, *(1,) * (grid.ndim - 2))
        for corner in itertools.product(*taps):
            weight, places = np.ones(grid.shape[:-1], wide.dtype), []
            for (index, share), n in zip(corner, lengths, strict=True):
                index = (
                    _bounded(index, n, padding_mode, align_corners)
                    if padding_mode != "zeros"
                    else index
                )
                weight = weight * np.where((index >= 0) & (index <= n - 1), share, 0)
                places.append(np.clip(index, 0, n - 1).astype(np.int64))
            picked = np.moveaxis(wide, 1, -1)[(batch, *places)]
            out += np.moveaxis(
                np.where(weight[..., None] == 0, 0, picked * weight[..., None]), -1, 1
            )
        return (out.astype(x.dtype),)


def _unnormalized(c: Array, size: int, align_corners: int) -> Array:
    return (c + 1) / 2 * (size - 1) if align_corners else ((c + 1) * size - 1) / 2


def _bounded(c: Array, size: int, padding: str, align_corners: int) -> Array:
    """Coordinates brought into the image: clamped, or reflected at its edge."""
    if padding == "border":
        return np.clip(c, 0, size - 1)
    low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
    if high <= low:
        return np.zeros_like(c)
    folded = np.abs(c - low) % (2 * (high - low))
    return np.clip(
        np.where(folded > high - low, 2 * (high - low) - folded, folded) + low, 0, size - 1
    )


def _grid_taps(c: Array, mode: str) -> list[tuple[Array, Array]]:
    """Pixels and their weights along one axis."""
    if mode == "nearest":
        return [(np.rint(c), np.ones_like(c))]
    base = np.floor(c)
    if "cubic" in mode:
        return [(base + k, _cubic(np.abs(base + k - c), -0.75)) for k in (-1, 0, 1, 2)]
    return [(base, base + 1 - c), (base + 1, c - base)]


class AffineGrid(OpRun):
    """The evaluator answers in float32."""

    def _run(self, theta: Array, size: Array, align_corners: int = 0, **_: Any) -> tuple[Array]:
        lengths = [int(n) for n in size[2:]]
        mesh = np.meshgrid(*(_centres(n, align_corners) for n in lengths), indexing="ij")
        homogeneous = np.stack([*mesh[::-1], np.ones(lengths)], axis=-1).astype(
            np.promote_types(theta.dtype, np.float32)
        )
        return (np.einsum("...j,nij->n...i", homogeneous, theta).astype(theta.dtype),)


def _centres(size: int, align_corners: int) -> Array:
    """Where the pixels of an axis lie between -1 and 1."""
    if not align_corners:
        return np.asarray((np.arange(size) * 2 + 1) / size - 1)
    return np.linspace(-1, 1, size) if size > 1 else np.zeros(size)


OPERATORS: tuple[type[OpRun], ...] = (
    Conv,
    ConvTranspose,
    MaxPool,
    AveragePool,
    LpPool,
    Resize,
    GridSample,
    AffineGrid,
)
