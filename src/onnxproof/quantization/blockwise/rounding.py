"""A matrix rounded to few bits so that its products change least: scales searched, then integers chosen with the inputs' second moments.

The error that counts is that of the products: tr(E H E'), where E is the change of the weights and H the mean of x x' over the inputs x that were seen.

1. Each block's scale and zero point: the best of several clipped ranges, members weighted by H's diagonal (`fit_grid`).
2. GPTQ (Frantar et al., 2023): columns are rounded one after the other, those of the largest inputs first, and what is lost in each is made up for
   in those that are still free (`compensate`).
3. In turn, as long as it gains: all scales of a row at once by least squares (`refit_scales`), and every integer moved to where the error of its row is least with the others
   as they are (`descend`).

Without H, step 1 with equal weights is all there is.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxproof.quantization.blockwise.form import Blocks, Form, spread

Array = np.ndarray[Any, Any]
_CLIPS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6)
_DAMPING = 0.01
"""Of the mean of H's diagonal, added to it: inputs that were never seen may still come (GPTQ's own value)."""
_GROUP = 128
"""Columns whose corrections are added up before they reach the rest of the matrix."""
_ROUNDS = 4
_SMALLEST = 2.0**-24
"""The smallest number of half precision: scales do not go below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Scale and zero point of each block, rows by blocks, in float32."""

    form: Form
    scales: Array
    zeros: Array

    def wide(self, columns: int) -> tuple[Array, Array]:
        """Both for every member of the blocks."""
        block = self.form.block
        return spread(self.scales, block, columns), spread(self.zeros, block, columns)


def round_matrix(weights: Array, form: Form, moments: Array | None = None) -> Blocks:
    """The rounded matrix whose products are nearest to those of `weights` (rows are outputs)."""
    weights = np.asarray(weights, np.float32)
    if moments is None:
        return nearest_blocks(weights, form, np.ones(weights.shape[1], np.float32))
    moments = damp(moments)
    grid = fit_grid(weights, form, np.diagonal(moments))
    best = _blocks(grid, compensate(weights, grid, moments))
    least = product_error(weights, best, moments)
    for _ in range(_ROUNDS):
        grid = refit_scales(weights, grid, best.integers, moments)
        other = _blocks(grid, descend(weights, grid, best.integers, moments))
        error = product_error(weights, other, moments)
        if error >= least:
            break
        best, least = other, error
    return best


def nearest_blocks(weights: Array, form: Form, importance: Array) -> Blocks:
    """Step 1 alone."""
    grid = fit_grid(weights, form, importance)
    return _blocks(grid, round_to_nearest(weights, grid))


def damp(moments: Array) -> Array:
    """H with something on its diagonal, in float32."""
    level = _DAMPING * float(np.mean(np.diagonal(moments))) or 1.0
    return np.asarray(moments + level * np.eye(len(moments)), np.float32)


def product_error(weights: Array, blocks: Blocks, moments: Array) -> float:
    """tr(E H E')."""
    change = blocks.values() - weights
    return float(np.einsum("ij,ij->", change @ moments, change, dtype=np.float64))


def round_to_nearest(weights: Array, grid: Grid) -> Array:
    """The nearest integer of every weight."""
    steps, middle = grid.wide(weights.shape[1])
    return np.asarray(np.clip(np.rint(weights / steps + middle), 0, grid.form.top), np.uint8)


def fit_grid(weights: Array, form: Form, importance: Array) -> Grid:
    """Step 1: of several clipped ranges, each block takes the one that loses least."""
    rows, columns = weights.shape
    blocks = -(-columns // form.block)
    parts = np.zeros((rows, blocks * form.block), np.float32)
    parts[:, :columns] = weights
    parts = parts.reshape(rows, blocks, form.block)
    counts = np.zeros(blocks * form.block, np.float32)
    counts[:columns] = importance
    counts = counts.reshape(1, blocks, form.block)
    least = np.full((rows, blocks), np.inf, np.float32)
    scales, zeros = np.ones_like(least), np.zeros_like(least)
    for steps, middle in _candidates(parts, form):
        integers = np.clip(np.rint(parts / steps[..., None] + middle[..., None]), 0, form.top)
        lost = (integers - middle[..., None]) * steps[..., None] - parts
        error = (lost * lost * counts).sum(2)
        better = error < least
        least = np.where(better, error, least)
        scales, zeros = np.where(better, steps, scales), np.where(better, middle, zeros)
    return Grid(form=form, scales=scales, zeros=zeros)


def _candidates(parts: Array, form: Form) -> Any:
    """Scales and zero points for every clipped range; without zero points both signs of the scale, since the integers reach one further down than up."""
    if form.zero_points:
        low = np.minimum(parts.min(2), 0.0)
        high = np.maximum(parts.max(2), 0.0)
        for clip in _CLIPS:
            steps = _as_half((high - low) * (clip / form.top))
            for offset in (0.0, 0.5):
                middle = np.clip(np.rint(-clip * low / steps + offset - 0.25), 0, form.top)
                yield steps, middle
        return
    half = (form.top + 1) // 2
    middle = np.full(parts.shape[:2], float(half), np.float32)
    largest = np.abs(parts).max(2)
    top = np.where(parts.max(2) >= -parts.min(2), -1.0, 1.0)
    for clip in _CLIPS:
        yield _as_half(largest * top * (clip / half)), middle
        yield _as_half(largest * (clip / (half - 0.5))), middle


def _as_half(scales: Array) -> Array:
    """As half precision stores them, and never zero."""
    small = np.abs(scales) < _SMALLEST
    scales = np.where(small, np.where(scales < 0, -_SMALLEST, _SMALLEST), scales)
    return np.asarray(scales.astype(np.float16), np.float32)


def compensate(weights: Array, grid: Grid, moments: Array) -> Array:
    """Step 2: round column by column, the rest makes up for it."""
    rows, columns = weights.shape
    order = np.argsort(-np.diagonal(moments), kind="stable")
    steps, middle = (wide[:, order] for wide in grid.wide(columns))
    factor = _inverse_factor(moments[np.ix_(order, order)])
    left = weights[:, order].copy()
    integers = np.zeros((rows, columns), np.uint8)
    for start in range(0, columns, _GROUP):
        end = min(start + _GROUP, columns)
        errors = np.zeros((rows, end - start), np.float32)
        for place in range(start, end):
            column = left[:, place]
            step, zero = steps[:, place], middle[:, place]
            rounded = np.clip(np.rint(column / step + zero), 0, grid.form.top)
            integers[:, place] = rounded
            error = (column - (rounded - zero) * step) / factor[place, place]
            errors[:, place - start] = error
            left[:, place:end] -= np.outer(error, factor[place, place:end])
        left[:, end:] -= errors @ factor[start:end, end:]
    result = np.empty_like(integers)
    result[:, order] = integers
    return result


def _inverse_factor(moments: Array) -> Array:
    """The upper Cholesky factor of H's inverse."""
    inverse = np.linalg.inv(moments.astype(np.float64))
    return np.asarray(np.linalg.cholesky(inverse).T, np.float32)


def refit_scales(weights: Array, grid: Grid, integers: Array, moments: Array) -> Grid:
    """Step 3: with the integers as they are, each row's scales by least squares."""
    rows, columns = weights.shape
    block, blocks = grid.form.block, grid.scales.shape[1]
    _, middle = grid.wide(columns)
    levels = integers - middle
    wanted = weights @ moments
    normal = np.zeros((rows, blocks, blocks))
    right = np.zeros((rows, blocks))
    for place in range(blocks):
        part = slice(place * block, min((place + 1) * block, columns))
        reach = levels[:, part] @ moments[part]
        right[:, place] = np.einsum("ij,ij->i", levels[:, part], wanted[:, part])
        products = reach * levels
        normal[:, place] = np.add.reduceat(products, np.arange(0, columns, block), axis=1)
    level = 1e-6 * np.einsum("ijj->i", normal) / blocks + 1e-12
    normal += level[:, None, None] * np.eye(blocks)
    right += level[:, None] * grid.scales
    scales = np.linalg.solve(normal, right[..., None])[..., 0]
    return Grid(form=grid.form, scales=_as_half(scales), zeros=grid.zeros)


def descend(weights: Array, grid: Grid, integers: Array, moments: Array) -> Array:
    """Step 3: every integer to where its row's error is least, given the others."""
    columns = weights.shape[1]
    steps, middle = grid.wide(columns)
    levels: Array = integers.astype(np.float32)
    slope = ((levels - middle) * steps - weights) @ moments
    for start in range(0, columns, _GROUP):
        end = min(start + _GROUP, columns)
        moved = np.zeros((len(weights), end - start), np.float32)
        for place in range(start, end):
            step = steps[:, place]
            best = levels[:, place] - slope[:, place] / (step * moments[place, place])
            best = np.clip(np.rint(best), 0, grid.form.top)
            change = (best - levels[:, place]) * step
            levels[:, place] = best
            moved[:, place - start] = change
            slope[:, place:end] += np.outer(change, moments[place, place:end])
        slope[:, end:] += moved @ moments[start:end, end:]
    return np.asarray(levels, np.uint8)


def _blocks(grid: Grid, integers: Array) -> Blocks:
    return Blocks(
        form=grid.form,
        integers=integers,
        scales=grid.scales.astype(np.float16),
        zeros=grid.zeros.astype(np.uint8),
    )
