"""Splits of tree ensembles: the comparison of their branches, and thresholds that were rounded to another side."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx

from onnxproof.diagnosis.counterfactuals.workbench import (
    Array,
    Tried,
    Workbench,
    attribute_value,
    node_name,
    set_attribute,
)
from onnxproof.results import InputInfo

_PREFIX = "TreeEnsemble"
_NEAR = 2.0**-8
"""How far apart a threshold and its rounded copy may be, in parts of it: a rounding to bfloat16, the coarsest type that thresholds are kept in."""
_WIDE = "up from float64"
_MODES = (b"BRANCH_LEQ", b"BRANCH_LT", b"BRANCH_GTE", b"BRANCH_GT")


def has_trees(workbench: Workbench) -> bool:
    """Whether the file has a node of trees."""
    return next(_tree_nodes(workbench), None) is not None


def try_other_branches(workbench: Workbench) -> Tried | str:
    """Every other comparison in the branches of a node of trees."""
    for node in _tree_nodes(workbench):
        modes: Sequence[bytes] = attribute_value(node, "nodes_modes", [])
        for mode in sorted(set(modes) & set(_MODES)):
            for other in _MODES:
                if other == mode:
                    continue
                changed = [other if known == mode else known for known in modes]
                tried = _try_attribute(
                    workbench,
                    node,
                    "nodes_modes",
                    changed,
                    f"{node_name(node)} branches by {mode.decode()}; with {other.decode()} the answers are right",
                )
                if tried is not None:
                    return tried
    return "no other comparison in the branches of its trees mends it"


def try_rounded_thresholds(workbench: Workbench) -> Tried | str:
    """Each threshold as the largest float32 that is not above the reference's own: so no float32 changes its side."""
    known = workbench.scene.reference.decisions().thresholds
    if not known:
        return "the splits of the reference are not known"
    for node in _tree_nodes(workbench):
        values = np.asarray(attribute_value(node, "nodes_values", []), np.float32)
        rounded = _own_thresholds(values, _split_features(node), known)
        is_below = np.asarray(attribute_value(node, "nodes_modes", [])) == b"BRANCH_LT"
        rounded = np.where(
            is_below & (rounded != values), np.nextafter(rounded, np.float32(np.inf)), rounded
        )
        moved = int((rounded != values).sum())
        if not moved or (_width(values) == _WIDE and _are_narrow(known)):
            continue
        tried = _try_attribute(
            workbench,
            node,
            "nodes_values",
            rounded.tolist(),
            f"{moved} of {len(values)} thresholds of {node_name(node)} were rounded {_width(values)}, so that samples between move to another leaf; "
            "as the largest float32 that is not above the reference's own the answers are right",
            code="precision",
        )
        if tried is not None:
            return tried
    return "no threshold was rounded to another side"


def _split_features(node: onnx.NodeProto) -> Array:
    """The column of every split; -1 for a leaf."""
    features = np.asarray(attribute_value(node, "nodes_featureids", []), np.int64)
    modes: Sequence[bytes] = attribute_value(node, "nodes_modes", [])
    return np.where([mode == b"LEAF" for mode in modes], -1, features)


def _width(values: Array) -> str:
    """The narrowest type that holds all of them."""
    with np.errstate(over="ignore"):
        if np.array_equal(values.astype(np.float16).astype(np.float32), values):
            return "to float16"
    if not (values.view(np.uint32) & 0xFFFF).any():
        return "to bfloat16"
    return _WIDE


def _are_narrow(known: Mapping[int, tuple[float, ...]]) -> bool:
    """Whether the reference's own thresholds are float32: then none was rounded to float32."""
    own = np.asarray([value for values in known.values() for value in values])
    return np.array_equal(own.astype(np.float32).astype(np.float64), own)


def _own_thresholds(
    values: Array, features: Array, known: Mapping[int, tuple[float, ...]]
) -> Array:
    """The reference's own thresholds rounded down, in the place of those that were made of them.

    1. Where a column has as many splits on both sides, they are paired in their order, if each is near its partner: converters keep it.
    2. Otherwise a value that is a rounded threshold of its column is paired with that.
    """
    own = _rounded_to_nearest_side(values, features, known)
    for feature in np.unique(features[features >= 0]):
        places = np.flatnonzero(features == feature)
        wanted = np.asarray(known.get(int(feature), ()), np.float64)
        if len(wanted) != len(places):
            continue
        distance = np.abs(wanted - values[places])
        if (distance <= _NEAR * np.maximum(np.abs(wanted), np.finfo(np.float16).tiny)).all():
            own[places] = _down(wanted)
    return own


def _down(wanted: Array) -> Array:
    """The largest float32 that is not above each."""
    narrow = wanted.astype(np.float32)
    below = np.nextafter(narrow, np.float32(-np.inf))
    return np.where(narrow.astype(np.float64) > wanted, below, narrow)


def try_narrow_inputs(workbench: Workbench) -> Tried | str:
    """The reference with its inputs rounded to the file's dtype: then the file says what the reference says of other samples."""
    narrowed = [info for info in workbench.scene.signature.inputs if _is_narrowed(info)]
    if not narrowed:
        return "the file takes its inputs in the reference's precision"
    names = ", ".join(f"`{info.name}`" for info in narrowed)
    words = f"the file takes {names} as {narrowed[0].onnx_dtype}, and the reference as {narrowed[0].dtype}; with its inputs rounded so, the reference gives the file's answers"

    def answer(inputs: Mapping[str, Array]) -> list[Array]:
        rounded = dict(inputs)
        for info in narrowed:
            array = np.asarray(inputs[info.name])
            rounded[info.name] = array.astype(info.onnx_dtype).astype(array.dtype)
        return workbench.truth_of(rounded)

    tried = workbench.try_counterfactual(workbench.changed_answers(answer), words, code="precision")
    return tried or "rounding the inputs of the reference does not give the file's answers"


def _is_narrowed(info: InputInfo) -> bool:
    return info.dtype == "float64" and info.onnx_dtype in ("float32", "float16", "bfloat16")


def _rounded_to_nearest_side(
    values: Array, features: Array, known: Mapping[int, tuple[float, ...]]
) -> Array:
    """Every value that is a rounded threshold of its feature, as the largest float32 that is not above that."""
    rounded = values.copy()
    for feature in np.unique(features[features >= 0]):
        own = np.sort(np.asarray(known.get(int(feature), ())))
        if not own.size:
            continue
        places = np.flatnonzero(features == feature)
        after = np.searchsorted(own, values[places].astype(np.float64)).clip(0, own.size - 1)
        before = (after - 1).clip(0)
        nearest = np.where(
            np.abs(own[after] - values[places]) <= np.abs(own[before] - values[places]),
            own[after],
            own[before],
        )
        narrow = nearest.astype(np.float32)
        is_threshold = np.abs(narrow - values[places]) <= np.spacing(np.abs(narrow))
        rounded[places] = np.where(is_threshold, _down(nearest), values[places])
    return rounded


def _try_attribute(
    workbench: Workbench,
    node: onnx.NodeProto,
    name: str,
    value: list[float] | list[bytes],
    evidence: str,
    code: str = "",
) -> Tried | None:
    return workbench.try_model(
        workbench.with_node(node, lambda changed: set_attribute(changed, name, value)),
        evidence=evidence,
        fix=f"set `{name}` of {node_name(node)}",
        code=code,
        node=node_name(node),
    )


def _tree_nodes(workbench: Workbench) -> Iterator[onnx.NodeProto]:
    """The located ones first."""
    located = [node for node in workbench.nodes if node.op_type.startswith(_PREFIX)]
    yield from located
    outputs = {node.output[0] for node in located}
    for node in workbench.model.graph.node:
        if node.op_type.startswith(_PREFIX) and node.output[0] not in outputs:
            yield node
