"""Products and reductions whose running sum is rounded to half precision at every step, for devices without a wider accumulator."""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def add_up(values: Array, axis: int, dtype: Any) -> Array:
    """The sum along one axis, term by term, rounded after each."""
    terms = np.moveaxis(values, axis, 0).astype(dtype)
    total = np.zeros(terms.shape[1:], dtype)
    for term in terms:
        total = (total.astype(np.float32) + term.astype(np.float32)).astype(dtype)
    return total


def multiply(a: Array, b: Array, dtype: Any) -> Array:
    """A matrix product of which every partial sum is rounded."""
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    shape = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    total = np.zeros((*shape, left.shape[-2], right.shape[-1]), dtype)
    for k in range(left.shape[-1]):
        term = (left[..., :, k, None] * right[..., None, k, :]).astype(dtype)
        total = (total.astype(np.float32) + term.astype(np.float32)).astype(dtype)
    if a.ndim == 1:
        total = total[..., 0, :]
    if b.ndim == 1:
        total = total[..., 0]
    return total


def _matmul(_: Any, dtype: Any, a: Array, b: Array) -> tuple[Array]:
    return (multiply(a, b, dtype),)


def _gemm(node: Any, dtype: Any, a: Array, b: Array, c: Array | None = None) -> tuple[Array]:
    left = a.T if getattr(node, "transA", 0) else a
    right = b.T if getattr(node, "transB", 0) else b
    y = getattr(node, "alpha", 1.0) * multiply(left, right, dtype).astype(np.float32)
    if c is not None:
        y = y + getattr(node, "beta", 1.0) * c
    return (y,)


def _reduction(
    before: Callable[[Array], Array], after: Callable[[Array, int], Array]
) -> Callable[..., tuple[Array]]:
    """A reduction from what is done to each element and to the sum of so many of them."""

    def reduce(node: Any, dtype: Any, x: Array, axes: Array | None = None) -> tuple[Array]:
        chosen = axes if axes is not None else getattr(node, "axes", None)
        if chosen is None or not np.size(chosen):
            chosen = range(x.ndim)
        places = sorted(int(axis) % x.ndim for axis in np.asarray(chosen).reshape(-1))
        total = before(x)
        count = 1
        for axis in reversed(places):
            count *= x.shape[axis]
            total = np.expand_dims(add_up(total, axis, dtype), axis)
        answer = after(total.astype(np.float32), count)
        if not getattr(node, "keepdims", 1):
            answer = answer.reshape(
                [n for axis, n in enumerate(answer.shape) if axis not in places]
            )
        return (answer,)

    return reduce


SUMMED_IN_HALF: dict[str, Callable[..., tuple[Array]]] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
    "ReduceL1": _reduction(np.abs, lambda total, _: total),
    "ReduceL2": _reduction(np.square, lambda total, _: np.sqrt(total)),
    "ReduceMean": _reduction(lambda x: x, lambda total, count: total / count),
    "ReduceSum": _reduction(lambda x: x, lambda total, _: total),
    "ReduceSumSquare": _reduction(np.square, lambda total, _: total),
}
"""What the node computes with such sums, from the node, the dtype and its inputs in float32. All other operators sum in float32."""
