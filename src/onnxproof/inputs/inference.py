"""Build the input space that generators draw from: what each input is for, read from the graph; how dims move, learned from the reference."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx

from onnxproof.inputs import texts
from onnxproof.inputs.file_constants import bounds, small_constants
from onnxproof.inputs.roles import HIDDEN_BELOW
from onnxproof.inputs.rules import Rules
from onnxproof.inputs.space import (
    NO_RULES,
    Array,
    Inputs,
    Role,
    Shape,
    Sizes,
    Slot,
    Space,
    evaluate,
    is_float,
)
from onnxproof.onnxmodel.onnx_file import OnnxFile, row_hashes
from onnxproof.results import Case, DimInfo, Domain, InputInfo, Signature

_PASSES = frozenset(
    {
        "Cast",
        "Identity",
        "Unsqueeze",
        "Squeeze",
        "Reshape",
        "Flatten",
        "Transpose",
        "Expand",
        "Slice",
        "Split",
        "Concat",
        "Add",
        "Sub",
        "Clip",
        "Gather",
        "Tile",
        "Where",
        "Max",
        "Min",
    }
)
"""Operators that ids pass through on their way to a table."""
_MOST_ROWS = 64
"""Rows of a table that differ from the module's and are looked up (not measured)."""
_LARGE_MODEL = 50_000_000
"""Weights from which on most cases are short: a pass of BERT-base (109 million) over 3 x 32 tokens takes 0.3 s on two cores. Not measured otherwise."""
_GATHERS = ("Gather", "GatherElements", "GatherND")
Accepts = Callable[[Case], bool]
"""Whether the reference takes a case."""
Parameter = Callable[[str], Array | None]
"""The reference's own weight of a name, or None."""


def make_space(
    signature: Signature,
    example: Inputs,
    file: OnnxFile,
    *,
    seed: int = 0,
    domains: tuple[Domain, ...] = tuple(Domain),
    data: Iterable[tuple[str, Inputs]] = (),
    parameter: Parameter = lambda name: None,
    rules: Rules = NO_RULES,
) -> Space:
    """The input space of a pair of models; `parameter` gives the reference's own weight of a name, where there is one."""
    tables = lookups(file)
    slots = []
    for info in signature.inputs:
        if example[info.name].dtype.kind == "U":
            slots.append(texts.text_slot(info, example[info.name], file))
            continue
        rows_by_table = tables.get(info.onnx_name or "", {})
        slot = _slot(info, example[info.name], rows_by_table, signature)
        if slot.tables:
            slot = replace(slot, differing_rows=_differing_rows(file, rows_by_table, parameter))
        slots.append(slot)
    return Space(
        signature=rules.narrow(signature),
        slots=tuple(slots),
        seed=seed,
        constants=small_constants(file),
        bounds=bounds(file),
        domains=domains,
        data=data,
        relations=_declared_relations(signature) | rules.relations,
        rules=rules,
        large_model=_count_weights(file) > _LARGE_MODEL,
        deciding=rules.deciding({slot.name: slot.example for slot in slots}),
    )


def _count_weights(file: OnnxFile) -> int:
    return sum(math.prod(tensor.dims) for tensor in file.model.graph.initializer)


def _declared_relations(signature: Signature) -> dict[str, str]:
    """Dims that the file itself says follow from others, where that holds for the example."""
    sizes = {dim.name: dim.example for dim in signature.dims}
    relations = {}
    for dim in signature.dims:
        words = set(dim.derived.split())
        is_sum = bool(dim.derived) and words <= {*sizes, "+", "-"}
        if is_sum and evaluate(dim.derived, sizes) == sizes[dim.name]:
            relations[dim.name] = dim.derived
    return relations


def _slot(
    info: InputInfo,
    example: Array,
    rows_by_table: Mapping[str, int],
    signature: Signature,
) -> Slot:
    """What one input is for.

    1. Booleans are masks, floats and complex numbers are floats.
    2. Integers of zeros and ones are a mask where the name says so, or where they look up no table.
    3. Integers that look up tables are ids below the number of rows.
    4. Integers just below the size of a dim are ids that index another input.
    5. All others are integers that are counted with.
    """
    if example.dtype.kind == "b":  # 1
        return Slot(info=info, role=Role.MASK, example=example)
    if is_float(example.dtype) or example.dtype.kind == "c":
        additive = _is_additive(info.name, example)
        return Slot(info=info, role=Role.FLOAT, example=example, additive=additive)
    if _is_integer_mask(info.name, example, looks_up=bool(rows_by_table)):  # 2
        return Slot(info=info, role=Role.MASK, example=example)
    if rows_by_table:  # 3
        return Slot(
            info=info,
            role=Role.IDS,
            example=example,
            high=min(rows_by_table.values()),
            tables=tuple(sorted(set(rows_by_table.values()))),
        )
    if example.ndim and example.size and int(example.min()) >= 0:  # 4
        high_dims = _indexed_dims(int(example.max()), signature)
        if high_dims is not None:
            return Slot(info=info, role=Role.IDS, example=example, high_dims=high_dims)
    return Slot(info=info, role=Role.INTEGER, example=example)  # 5


def _is_integer_mask(
    name: str,
    example: Array,
    *,
    looks_up: bool,
) -> bool:
    if not example.size or not np.isin(example, (0, 1)).all():
        return False
    if "mask" in name.lower():
        return True
    return example.size > 1 and not looks_up


def _indexed_dims(largest: int, signature: Signature) -> tuple[str, ...] | None:
    """The open dims that integers up to `largest` may index; none of them, but not None, where they may index a fixed dim.

    An index is taken for one where the next larger size is at most twice as large.
    """
    most = 2 * largest + 2
    open_sizes = [dim.example for dim in signature.dims if dim.example > largest]
    next_size = min(open_sizes, default=most + 1)
    if next_size <= most:
        return tuple(dim.name for dim in signature.dims if dim.example == next_size)
    input_sizes = [size for info in signature.inputs for size in info.shape if size > largest]
    if min(input_sizes, default=most + 1) <= most:
        return ()
    return None


def _is_additive(name: str, example: Array) -> bool:
    """A float input called a mask or bias, or whose example holds nothing but zeros and hidden places."""
    if example.dtype.kind == "c":
        return False
    wide = example.astype(np.float64)
    keeps_or_hides = (wide == 0) | (wide <= HIDDEN_BELOW)
    if example.size and keeps_or_hides.all():
        return True
    return "mask" in name.lower() and bool((wide <= 0).all())


def lookups(file: OnnxFile) -> dict[str, dict[str, int]]:
    """For each integer input that reaches a Gather from tables: their names, and the rows of each."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in file.model.graph.initializer}
    # the inputs that each value comes from
    sources: dict[str, set[str]] = {port.name: {port.name} for port in file.inputs}
    tables: dict[str, dict[str, int]] = {}
    for node in file.model.graph.node:  # the graph is sorted: one pass follows every value
        shape = _looked_up_shape(node, shapes)
        if shape:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            if not -len(shape) <= axis < len(shape):  # the runtime refuses it
                continue
            for source in sources.get(node.input[1], ()):
                tables.setdefault(source, {})[node.input[0]] = int(shape[axis])
        elif node.op_type in _PASSES:  # a Gather among them picks a column of the ids themselves
            passed = {source for name in node.input for source in sources.get(name, ())}
            sources.update(dict.fromkeys(node.output, passed))
    return tables


def _looked_up_shape(node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> Shape:
    """The shape of the table that a node looks up; empty where it looks up none."""
    if node.op_type not in _GATHERS or len(node.input) < 2:
        return ()
    return shapes.get(node.input[0], ())


def _differing_rows(
    file: OnnxFile,
    tables: Iterable[str],
    parameter: Parameter,
) -> tuple[int, ...]:
    """The rows of tables that are not the module's: one stale row of thousands shows in no other way."""
    rows: dict[int, None] = {}
    for name in tables:
        weight = parameter(name)
        marks = file.tables.get(name)
        if weight is None or marks is None:
            continue
        if weight.ndim != 2 or len(weight) != len(marks):
            continue
        differing = np.flatnonzero(marks != row_hashes(weight))[:_MOST_ROWS]
        rows.update(dict.fromkeys(int(row) for row in differing))
    return tuple(rows)


def learn_dims(
    space: Space,
    accepts: Accepts,
    in_time: Callable[[], bool] = lambda: True,
) -> Space:
    """Find out from the reference which dims move alone, which move together, and which follow from others; those not asked in time stay as they are."""
    for dim in space.signature.dims:
        if not in_time():
            break
        if dim.name in space.relations or dim.name in space.pinned:
            continue
        size = space.next_size(dim)
        if dim.maximum is not None and dim.example >= dim.maximum:
            size = dim.example - 1
        if size < 1:
            continue
        tied = _is_tied_batch(space, dim)
        if not tied and _moves(space, {dim.name: size}, accepts):
            continue
        space = _relate(space, dim.name, size, accepts)
    return space


def _moves(
    space: Space,
    sizes: Sizes,
    accepts: Accepts,
) -> bool:
    """Whether the reference takes ordinary values at these sizes."""
    all_sizes = space.sizes(**sizes)
    if not space.fits(all_sizes):
        return False
    return accepts(space.case("learn-dims", "learn", "", all_sizes))


def _is_tied_batch(space: Space, dim: DimInfo) -> bool:
    """Whether an earlier leading dim, of another input, has the same size: moving an undeclared one alone may pass by broadcasting alone."""
    leading = {info.dims[0] for info in space.signature.inputs if info.dims}
    if dim.declared or dim.name not in leading:
        return False
    earlier = itertools.takewhile(lambda other: other.name != dim.name, space.signature.dims)
    return any(
        other.name in leading and other.example == dim.example and other.name not in space.relations
        for other in earlier
    )


def _relate(
    space: Space,
    name: str,
    size: int,
    accepts: Accepts,
) -> Space:
    """Find what a dim that does not move alone depends on: the first relation that the reference accepts is kept.

    1. `name = other`: a dim of the same size moves with it.
    2. `name = a + b`, or `other = name + b`: sums that hold for the example.
    3. Nothing is accepted: the dim is pinned.
    """
    example = {dim.name: dim.example for dim in space.signature.dims}
    for other in example:  # 1
        if other == name or other in space.relations or example[other] != example[name]:
            continue
        related = replace(space, relations={**space.relations, name: other})
        if _moves(related, {other: size}, accepts):
            return related
    for whole, first, second in _sums_with(name, example):  # 2
        if whole in space.relations:
            continue
        related = replace(
            space,
            relations={**space.relations, whole: f"{first} + {second}"},
            pinned=space.pinned - {first, second, whole},
        )
        moved = name
        if name == whole:
            moved = first
        if _moves(related, {moved: example[moved] + 1}, accepts):
            return related
    return replace(space, pinned=space.pinned | {name})  # 3


def _sums_with(
    name: str,
    sizes: Sizes,
) -> Iterator[tuple[str, str, str]]:
    """Every `whole = first + second` of these sizes in which a dim takes part."""
    for whole in sizes:
        others = [other for other in sizes if other != whole]
        for first, second in itertools.combinations(others, 2):
            holds = sizes[whole] == sizes[first] + sizes[second]
            if holds and name in (whole, first, second):
                yield whole, first, second


def fit_ids(space: Space, accepts: Callable[[Case], bool]) -> Space:
    """Ids that were thought to count along a dim stay within the example's own, where the reference refuses others and takes those."""
    guessed = [slot for slot in space.slots if slot.role is Role.IDS and slot.high_dims]
    if not guessed or accepts(space.case("ids", "ordinary", "", space.sizes())):
        return space
    slots = tuple(
        replace(slot, high=int(slot.example.max(initial=0)) + 1, high_dims=())
        if slot in guessed
        else slot
        for slot in space.slots
    )
    fitted = replace(space, slots=slots)
    if accepts(fitted.case("ids", "ordinary", "", space.sizes())):
        return fitted
    return space


def describe_dims(space: Space) -> Signature:
    """The signature with what was learned about its dims."""
    pinned = dict.fromkeys(space.pinned, "fixed: the reference refuses other sizes")
    derived = {**pinned, **space.relations}
    dims = []
    for dim in space.signature.dims:
        dims.append(replace(dim, derived=derived.get(dim.name, "")))
    return replace(space.signature, dims=tuple(dims))
