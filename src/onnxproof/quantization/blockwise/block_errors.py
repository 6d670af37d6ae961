"""What in a matrix of few bits makes its error: rows, blocks, scales, zero points, integers.

The error that counts is that of the products, tr(E H E') (see `rounding`). Each of scales, zero points and integers is chosen anew with the two others as they are: what that saves is
what it costs. Where the error lies is told by row and by block.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from onnxproof.results.blocks import BlockPart
from onnxproof.verification.block_reading import pack_rows
from onnxproof.verification.block_weights import BlockWeight

Array = np.ndarray[Any, Any]
_TELLING = 0.1
"""Share of a matrix's cost from which on a part of it is told (not measured)."""
_UNEVEN, _MOST_OF_IT = 5.0, 0.6
"""A row or a block is told where it has this many times its even share, or this share of all (not measured)."""
_TINY = 1e-30


def error_of(change: Array, moments: Array) -> float:
    """tr(E H E')."""
    return float(np.einsum("ij,ij->", change @ moments, change, dtype=np.float64))


def parts_of(weight: BlockWeight, plain: Array, moments: Array, cost: float) -> list[BlockPart]:
    """The parts that cost most first; `cost` is that of the whole matrix."""
    whole = error_of(weight.floats - plain, moments)
    if whole <= 0.0:
        return []
    parts = []
    for what, other in _chosen_anew(weight, plain, np.diagonal(moments)):
        left = error_of(other.floats - plain, moments)
        parts.append(BlockPart(what=what, cost=cost * max(0.0, 1 - left / whole)))
    parts += _places(weight, plain, moments, cost)
    telling = [part for part in parts if part.cost >= _TELLING * cost > 0]
    return sorted(telling, key=lambda part: -part.cost)


def _chosen_anew(
    weight: BlockWeight, plain: Array, importance: Array
) -> Iterator[tuple[str, BlockWeight]]:
    """The weight with one thing chosen anew."""
    columns = weight.block_of_column
    blocks = weight.scales.shape[1]
    centred = weight.integers - weight.offsets[:, columns]
    products = _by_block(centred * plain * importance, columns, blocks)
    squares = _by_block(centred**2 * importance, columns, blocks)
    scales = np.where(squares > 0, products / np.maximum(squares, _TINY), weight.scales)
    yield "scales", replace(weight, scales=scales)
    steps = np.where(weight.scales == 0, 1.0, weight.scales)[:, columns]
    wanted = weight.integers - plain / steps
    counts = _by_block(np.broadcast_to(importance, plain.shape), columns, blocks)
    zeros = _by_block(wanted * importance, columns, blocks) / np.maximum(counts, _TINY)
    if not weight.storage.float_zeros:
        zeros = np.clip(np.rint(zeros), 0, weight.top)
    yield "zero points", replace(weight, zeros=zeros)
    integers = np.clip(np.rint(plain / steps + weight.offsets[:, columns]), 0, weight.top)
    packed = pack_rows(integers.astype(np.uint8), weight.packing.bits)
    yield "integers", replace(weight, packed=packed)


def _by_block(numbers: Array, columns: Array, blocks: int) -> Array:
    """Sums over the members of each block, row by row."""
    sums = np.zeros((blocks, len(numbers)))
    np.add.at(sums, columns, numbers.T)
    return sums.T


def _places(weight: BlockWeight, plain: Array, moments: Array, cost: float) -> Iterator[BlockPart]:
    """The row, and the block of all rows, that have far more than their even share."""
    change = weight.floats - plain
    by_row = np.einsum("ij,ij->i", change @ moments, change)
    blocks = weight.scales.shape[1]
    by_block = _by_block(change**2 * np.diagonal(moments), weight.block_of_column, blocks).sum(0)
    for word, errors in (("row", by_row), ("block", by_block)):
        share = float(errors.max() / max(errors.sum(), _TINY))
        if len(errors) > 1 and share > min(_UNEVEN / len(errors), _MOST_OF_IT):
            yield BlockPart(what=f"{word} {int(errors.argmax())}", cost=cost * share)
