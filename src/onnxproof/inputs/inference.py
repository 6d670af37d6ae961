"""Make the space that generators work in: what each input is for, read from the graph; how dims move, learned from the reference."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from onnxproof.inputs.space import Array, Role, Slot, Space, evaluate, is_float
from onnxproof.onnxmodel.onnx_file import OnnxFile, constants, row_hashes, walk
from onnxproof.results import Case, Domain, InputInfo, Signature

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
_MOST_ROWS = 64
_COMPARES = frozenset(
    {"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "Clip", "Max", "Min"}
)
_MOST_BOUNDS = 4096


def make_space(
    signature: Signature,
    example: Mapping[str, Array],
    file: OnnxFile,
    *,
    seed: int = 0,
    domains: tuple[Domain, ...] = tuple(Domain),
    data: Iterable[tuple[str, Mapping[str, Array]]] = (),
    parameter: Callable[[str], Array | None] = lambda name: None,
) -> Space:
    """The space of a pair of models; `parameter` gives the reference's own weight of a name, where there is one."""
    tables = lookups(file)
    slots = tuple(
        _slot(
            info,
            example[info.name],
            tables.get(info.onnx_name or "", {}),
            signature,
            file,
            parameter,
        )
        for info in signature.inputs
    )
    pool = [
        float(v)
        for array in constants(file).values()
        if array.size <= 16 and array.dtype.kind in "fiu"
        for v in array.reshape(-1)
    ]
    finite = tuple(dict.fromkeys(v for v in pool if np.isfinite(v)))
    return Space(
        signature=signature,
        slots=slots,
        seed=seed,
        constants=finite,
        bounds=_bounds(file),
        domains=domains,
        data=data,
        relations=_said(signature),
    )


def _bounds(file: OnnxFile) -> tuple[float, ...]:
    """What values are compared with, also where there is a whole table of it: the splits of a forest."""
    known = constants(file, largest=_MOST_BOUNDS)
    arrays = [
        known[name]
        for node in walk(file.model)
        if node.op_type in _COMPARES
        for name in node.input
        if name in known
    ]
    arrays += [
        np.asarray(a.floats)
        for node in walk(file.model)
        if node.op_type.startswith("TreeEnsemble")
        for a in node.attribute
        if a.name == "nodes_values"
    ]
    return tuple(
        dict.fromkeys(
            float(v)
            for array in arrays
            if array.dtype.kind in "fiu"
            for v in array.reshape(-1)
            if np.isfinite(v)
        )
    )[:_MOST_BOUNDS]


def _said(signature: Signature) -> dict[str, str]:
    """Dims that the file itself says follow from others, where that holds for the example."""
    sizes = {dim.name: dim.example for dim in signature.dims}
    known = {
        dim.name: dim.derived
        for dim in signature.dims
        if dim.derived and set(dim.derived.split()) <= {*sizes, "+", "-"}
    }
    return {name: words for name, words in known.items() if evaluate(words, sizes) == sizes[name]}


def _slot(
    info: InputInfo,
    example: Array,
    tables: Mapping[str, int],
    signature: Signature,
    file: OnnxFile,
    parameter: Callable[[str], Array | None],
) -> Slot:
    rows = min(tables.values(), default=None)
    if example.dtype.kind == "b":
        return Slot(info=info, role=Role.MASK, example=example)
    if is_float(example.dtype) or example.dtype.kind == "c":
        return Slot(
            info=info, role=Role.FLOAT, example=example, additive=_is_additive(info.name, example)
        )
    binary = example.size > 0 and bool(np.isin(example, (0, 1)).all())
    if ("mask" in info.name.lower() and binary) or (binary and example.size > 1 and rows is None):
        return Slot(info=info, role=Role.MASK, example=example)
    if rows is not None:
        telling = [row for name in tables for row in _other_rows(file, name, parameter(name))]
        return Slot(
            info=info,
            role=Role.IDS,
            example=example,
            high=rows,
            tables=tuple(sorted(set(tables.values()))),
            telling=tuple(dict.fromkeys(telling)),
        )
    largest = int(example.max(initial=0))
    if example.size and int(example.min()) >= 0 and example.ndim:
        above = sorted({d.example for d in signature.dims if d.example > largest})
        dims = tuple(
            d.name
            for d in signature.dims
            if above and d.example == above[0] and above[0] <= 2 * largest + 2
        )
        fixed = [size for i in signature.inputs for size in i.shape if size > largest]
        if dims:
            return Slot(info=info, role=Role.IDS, example=example, high_dims=dims)
        if fixed and min(fixed) <= 2 * largest + 2:
            return Slot(info=info, role=Role.IDS, example=example)
    return Slot(info=info, role=Role.INTEGER, example=example)


def _is_additive(name: str, example: Array) -> bool:
    """A float input called a mask or bias, or whose example holds nothing but zeros and hidden places."""
    if example.dtype.kind == "c":
        return False
    wide = example.astype(np.float64)
    hides = bool(example.size) and bool(((wide == 0) | (wide <= -1e3)).all())
    return hides or ("mask" in name.lower() and bool((wide <= 0).all()))


def lookups(file: OnnxFile) -> dict[str, dict[str, int]]:
    """For each integer input that reaches a Gather from tables: their names, and the rows of each."""
    sizes = {tensor.name: tuple(tensor.dims) for tensor in file.model.graph.initializer}
    reach: dict[str, set[str]] = {port.name: {port.name} for port in file.inputs}
    found: dict[str, dict[str, int]] = {}
    for node in file.model.graph.node:  # the graph is sorted: one pass follows every value
        sources = {s for name in node.input for s in reach.get(name, ())}
        if (
            node.op_type in ("Gather", "GatherElements", "GatherND")
            and len(node.input) > 1
            and sizes.get(node.input[0])
        ):
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            for source in reach.get(node.input[1], ()):
                found.setdefault(source, {})[node.input[0]] = int(sizes[node.input[0]][axis])
        elif node.op_type in _PASSES:  # a Gather among them picks a column of the ids themselves
            for name in node.output:
                reach[name] = sources
    return found


def _other_rows(file: OnnxFile, name: str, own: Array | None) -> list[int]:
    """The rows of a table that are not the module's: one stale row of thousands shows in no other way."""
    marks = file.tables.get(name)
    if own is None or marks is None or own.ndim != 2 or len(own) != len(marks):
        return []
    return [int(row) for row in np.flatnonzero(marks != row_hashes(own))[:_MOST_ROWS]]


def learn_dims(
    space: Space, accepts: Callable[[Case], bool], in_time: Callable[[], bool] = lambda: True
) -> Space:
    """Find out from the reference which dims move alone, which move together, and which follow from others; those not asked in time stay as they are."""
    for dim in space.signature.dims:
        if not in_time():
            break
        if dim.name in space.relations or dim.name in space.pinned:
            continue
        step = (
            dim.example + 1 if dim.maximum is None or dim.example < dim.maximum else dim.example - 1
        )
        if step < 1 or (
            _tied_batch(space, dim.name) is None and _moves(space, {dim.name: step}, accepts)
        ):
            continue
        space = _relate(space, dim.name, step, accepts)
    return space


def _moves(space: Space, sizes: Mapping[str, int], accepts: Callable[[Case], bool]) -> bool:
    full = space.sizes(**sizes)
    return space.fits(full) and accepts(space.case("learn-dims", "learn", "", full))


def _tied_batch(space: Space, name: str) -> str | None:
    """An undeclared leading dim of another input with the same size: moving one alone may pass by broadcasting alone."""
    dim = space.signature.dim(name)
    leading = {info.dims[0] for info in space.signature.inputs if info.dims}
    for other in space.signature.dims:
        if other.name == name:
            return None
        if (
            not dim.declared
            and {name, other.name} <= leading
            and other.example == dim.example
            and other.name not in space.relations
        ):
            return other.name
    return None


def _relate(space: Space, name: str, step: int, accepts: Callable[[Case], bool]) -> Space:
    """Try `name = other`, `name = a + b`, `other = name + b`; what the reference accepts is kept, else the dim is pinned."""
    example = {d.name: d.example for d in space.signature.dims}
    others = [other for other in example if other != name and other not in space.relations]
    for expression in [o for o in others if example[o] == example[name]]:
        trial = replace(space, relations={**space.relations, name: expression})
        if _moves(trial, {expression: step}, accepts):
            return trial
    sums = [
        (whole, (a, b))
        for whole in example
        for a, b in itertools.combinations([o for o in example if o != whole], 2)
        if example[whole] == example[a] + example[b] and name in (whole, a, b)
    ]
    for whole, (a, b) in sums:
        if whole in space.relations:
            continue
        trial = replace(
            space,
            relations={**space.relations, whole: f"{a} + {b}"},
            pinned=space.pinned - {a, b, whole},
        )
        mover = a if name == whole else name
        if _moves(trial, {mover: example[mover] + 1}, accepts):
            return trial
    return replace(space, pinned=space.pinned | {name})


def describe_dims(space: Space) -> Signature:
    """The signature with what was learned about its dims."""
    dims = tuple(
        replace(
            d,
            derived=space.relations.get(
                d.name, "fixed: the reference refuses other sizes" if d.name in space.pinned else ""
            ),
        )
        for d in space.signature.dims
    )
    return replace(space.signature, dims=dims)
