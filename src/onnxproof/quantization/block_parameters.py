"""Weights of a few bits in blocks, checked against the float weights they were made from: scales, zero points, the order of nibbles, of rows, of groups.

Whatever made the file, a weight that is taken out of its blocks must give the reference's weight but for the rounding of one step. Where it does not, and
one thing put right makes it fit, that is wrong. Weights that were changed on purpose (scaled against each other) fit neither way.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.attribution import Study, gain
from onnxproof.quantization.float_graph import copy_model
from onnxproof.quantization.parameter_search import Mended
from onnxproof.quantization.qdq_edit import add_initializer, free_name
from onnxproof.quantization.weight_parameters import Parameter, Repair
from onnxproof.verification import block_reading, block_weights
from onnxproof.verification.block_weights import BlockWeight, Origin

Array = np.ndarray[Any, Any]
_FITS = 1.0
"""Root mean square of what a row leaves, in steps: rounding to nearest leaves 0.29 by arithmetic, a search for better rounding more. The limit is not measured."""
_IMPROVES = 2.0
"""The file's own weight must leave this many times more than the better one. Not measured."""
_SAME_SCALE = 0.1
"""Relative distance up to which two scales are the same: one that is estimated from 16 weights of 4 bits is 5 % off. Not measured beyond that."""
_LEAST_GAIN_DB = 0.5
"""What a weight must bring that was put right and fits. Not measured."""
_LEAST_EXCHANGE_DB = 3.0
"""What exchanging two weights must bring, which both fit somewhere: half of the error's energy."""
_MOST_EXCHANGES = 24
"""Pairs of weights of one shape that are tried. Not measured."""
_TINY = 1e-30


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRepair:
    """A weight with one thing put right."""

    weight: BlockWeight
    what: str


Trial = Callable[[BlockWeight, Array], Iterator[BlockRepair]]


def search(study: Study, floats: Mapping[str, Array]) -> Mended | None:
    """The weights that are wrong, put right; None where none is, or where that brings nothing.

    1. Each weight against its own float one.
    2. All of them fit: two weights of one shape that stand in each other's place.
    """
    weights = block_reading.find(study.model)
    repairs = find_repairs(weights, floats)
    before = study.sqnr_db(study.model)
    if repairs:  # step 1
        model = apply_repairs(study.model, repairs)
        after = study.sqnr_db(model)
        if gain(before, after) < _LEAST_GAIN_DB:
            return None
        return Mended(
            model=model,
            repairs=tuple(_described(repair) for repair in repairs),
            before_db=before,
            after_db=after,
        )
    return _search_exchanges(study, weights, before)  # step 2


def find_repairs(weights: Sequence[BlockWeight], floats: Mapping[str, Array]) -> list[BlockRepair]:
    """The wrong weights, in graph order."""
    origins = block_weights.find_origins(weights, floats)
    repairs = []
    for weight in weights:
        if weight.name not in origins:
            continue
        plain = np.concatenate([origin.floats for origin in origins[weight.name]])
        if plain.shape != weight.shape or misfit(weight, plain) <= _FITS:
            continue
        repair = _repair(weight, plain.astype(np.float64), origins[weight.name])
        if repair is not None:
            repairs.append(repair)
    return repairs


def misfit(weight: BlockWeight, plain: Array) -> float:
    """What the worst row leaves of the float weight, rms in steps."""
    step = np.maximum(np.abs(weight.scales[:, weight.block_of_column]), _TINY)
    error = np.square((weight.floats - plain) / step)
    return float(np.sqrt(error.mean(axis=1)).max())


def _repair(weight: BlockWeight, plain: Array, origins: Sequence[Origin]) -> BlockRepair | None:
    """The first thing that, put right, makes the weight fit; else its numbers rounded anew."""
    trials: tuple[Trial, ...] = (_nibbles, _zero_points, _groups, _scales, _rows)
    before = misfit(weight, plain)
    for trial in trials:
        for repair in trial(weight, plain):
            after = misfit(repair.weight, plain)
            if after <= _FITS and after * _IMPROVES < before:
                return repair
    names = ", ".join(f"`{origin.name}`" for origin in origins)
    return _rounded_anew(weight, plain, f"its numbers are not those of {names}")


def _nibbles(weight: BlockWeight, plain: Array) -> Iterator[BlockRepair]:
    if weight.packing.bits != 4:
        return
    packed = (weight.packed >> 4 | weight.packed << 4).astype(np.uint8)
    yield BlockRepair(
        weight=_with(weight, packed=packed), what="the two numbers of each byte are exchanged"
    )


def _zero_points(weight: BlockWeight, plain: Array) -> Iterator[BlockRepair]:
    """The zero points that the float weight asks for, block by block."""
    columns = weight.block_of_column
    asked = weight.integers - plain / np.where(weight.scales == 0, 1.0, weight.scales)[:, columns]
    zeros = np.stack(
        [asked[:, columns == block].mean(axis=1) for block in range(weight.packing.blocks)],
        axis=1,
    )
    zeros = np.clip(np.rint(zeros), 0, 2**weight.packing.bits - 1)
    off = weight.offsets - zeros
    wrong = off[off != 0]
    if not wrong.size:
        return
    words = f"{wrong.size} of its {off.size} zero points are off"
    shifts, counts = np.unique(wrong, return_counts=True)
    if counts.max() > 0.9 * wrong.size:
        words = f"{words} by {shifts[counts.argmax()]:+g}"
    if weight.zeros is None:
        words = "it has no zero points, and needs them"
    yield BlockRepair(weight=_with(weight, zeros=zeros), what=words)


def _groups(weight: BlockWeight, plain: Array) -> Iterator[BlockRepair]:
    """The block of each column whose scales fit it."""
    columns = weight.packing.columns
    errors = np.empty((weight.packing.blocks, columns))
    for block in range(weight.packing.blocks):
        offset, scale = weight.offsets[:, block, None], weight.scales[:, block, None]
        errors[block] = np.square((weight.integers - offset) * scale - plain).sum(axis=0)
    groups = errors.argmin(axis=0).astype(np.int32)
    neighbours = np.arange(columns) // weight.packing.block
    pairs = set(zip(neighbours.tolist(), groups.tolist(), strict=True))
    if len(pairs) == weight.packing.blocks:
        return  # whole blocks of neighbours: it is their scales that stand in another order
    words = "its `g_idx` is missing" if weight.groups is None else "its `g_idx` is another's"
    yield BlockRepair(weight=_with(weight, groups=groups), what=words)


def _scales(weight: BlockWeight, plain: Array) -> Iterator[BlockRepair]:
    """The scales that the float weight asks for, block by block."""
    columns = weight.block_of_column
    centred = weight.integers - weight.offsets[:, columns]
    asked = np.empty_like(weight.scales)
    for block in range(weight.packing.blocks):
        inside = columns == block
        product = (centred[:, inside] * plain[:, inside]).sum(axis=1)
        asked[:, block] = product / np.maximum(np.square(centred[:, inside]).sum(axis=1), _TINY)
    asked = np.where(asked == 0, weight.scales, asked)
    words = _scales_in_words(weight.scales, asked)
    yield BlockRepair(weight=_with(weight, scales=asked), what=words)


def _scales_in_words(given: Array, asked: Array) -> str:
    ratio = given / np.where(asked == 0, 1.0, asked)
    wrong = np.abs(ratio - 1) > _SAME_SCALE
    rows = np.flatnonzero(wrong.any(axis=1))
    if len(rows) == 1:
        return f"row {rows[0]} is {np.median(ratio[rows[0]]):.2g} times what it should be"
    if _same(np.sort(given, axis=1), np.sort(asked, axis=1)):
        return "the scales of its blocks are in another order"
    if _same(np.sort(given, axis=None), np.sort(asked, axis=None)):
        return "the scales of its rows and blocks are in another order"
    return f"{wrong.sum()} of its {wrong.size} scales are not those of its weight"


def _same(one: Array, other: Array) -> bool:
    """But for a few that were badly estimated."""
    near = np.abs(one - other) <= _SAME_SCALE * np.maximum(np.abs(other), _TINY)
    return bool(near.mean() > 0.9)


def _rows(weight: BlockWeight, plain: Array) -> Iterator[BlockRepair]:
    """Rows of integers in another order."""
    centred = weight.integers - weight.offsets[:, weight.block_of_column]
    one = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), _TINY)
    other = plain / np.maximum(np.linalg.norm(plain, axis=1, keepdims=True), _TINY)
    order = np.abs(other @ one.T).argmax(axis=1)
    if len(set(order.tolist())) < len(order) or (order == np.arange(len(order))).all():
        return
    yield BlockRepair(
        weight=_with(weight, packed=weight.packed[order]), what="its rows are in another order"
    )


def _rounded_anew(weight: BlockWeight, plain: Array, what: str) -> BlockRepair:
    """The float weight itself, rounded to the nearest step of its own blocks."""
    levels = 2**weight.packing.bits
    columns = weight.block_of_column
    scales = np.stack(
        [
            np.abs(plain[:, columns == block]).max(axis=1) / (levels / 2 - 1)
            for block in range(weight.packing.blocks)
        ],
        axis=1,
    )
    scales = np.maximum(scales, _TINY)
    integers = np.rint(plain / scales[:, columns]) + levels // 2
    zeros = None if weight.zeros is None else np.full_like(scales, levels / 2)
    packed = pack(np.clip(integers, 0, levels - 1), weight)
    return BlockRepair(weight=_with(weight, packed=packed, scales=scales, zeros=zeros), what=what)


def pack(integers: Array, weight: BlockWeight) -> Array:
    """Integers in the form of the weight's own."""
    bits = weight.packing.bits
    rows = len(integers)
    width = weight.packed.reshape(rows, -1).shape[1]
    numbers = np.full((rows, width * 8 // bits), 2 ** (bits - 1), np.uint8)
    numbers[:, : integers.shape[1]] = integers
    digits = np.unpackbits(numbers[..., None], axis=-1, bitorder="little")[..., :bits]
    stream = digits.reshape(rows, -1)
    return np.packbits(stream, axis=-1, bitorder="little").reshape(weight.packed.shape)


def _with(weight: BlockWeight, **changes: Any) -> BlockWeight:
    return replace(weight, **changes)


def apply_repairs(model: onnx.ModelProto, repairs: Sequence[BlockRepair]) -> onnx.ModelProto:
    """A copy with the right weights, under names of their own."""
    changed = copy_model(model)
    nodes = {node.output[0]: node for node in changed.graph.node}
    for repair in repairs:
        node = nodes[repair.weight.node.output[0]]
        for place, array in block_reading.stored_arrays(repair.weight).items():
            name = free_name(changed, f"{node.output[0]}_repaired_{place}")
            add_initializer(changed, array, name)
            while len(node.input) <= place:
                node.input.append("")
            node.input[place] = name
    del changed.graph.value_info[:]
    return changed


def _described(repair: BlockRepair) -> Repair:
    return Repair(
        output=repair.weight.node.output[0],
        parameter=Parameter.OF_A_CONSTANT,
        what=repair.what,
        scale=repair.weight.scales,
    )


def _search_exchanges(study: Study, weights: Sequence[BlockWeight], before: float) -> Mended | None:
    """The two weights of one shape whose exchange brings most, if it brings enough."""
    pairs = [
        pair
        for pair in itertools.combinations(weights, 2)
        if pair[0].shape == pair[1].shape
        and pair[0].packing == pair[1].packing
        and all(weight.node.op_type == "MatMulNBits" for weight in pair)
    ]
    best: Mended | None = None
    for one, other in pairs[:_MOST_EXCHANGES]:
        model = _exchanged(study.model, one, other)
        after = study.sqnr_db(model)
        enough = gain(before, after) >= _LEAST_EXCHANGE_DB
        if enough and (best is None or after > best.after_db):
            repairs = tuple(
                _described(BlockRepair(weight=left, what=f"it has the weight of `{right.name}`"))
                for left, right in ((one, other), (other, one))
            )
            best = Mended(model=model, repairs=repairs, before_db=before, after_db=after)
    return best


def _exchanged(model: onnx.ModelProto, one: BlockWeight, other: BlockWeight) -> onnx.ModelProto:
    changed = copy_model(model)
    nodes = {node.output[0]: node for node in changed.graph.node}
    left, right = nodes[one.node.output[0]], nodes[other.node.output[0]]
    kept = list(left.input[1:])
    moved = list(right.input[1:])
    del left.input[1:], right.input[1:]
    left.input.extend(moved)
    right.input.extend(kept)
    return changed
