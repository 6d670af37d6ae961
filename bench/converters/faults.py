"""Faults of conversions: planted into healthy files, and such as converters make by themselves (`native`)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bench.converters import healthy
from bench.converters.healthy import Conversion

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A conversion that is wrong, and what is to be said of it."""

    name: str
    conversion: Conversion
    op_type: str = ""
    """The operator of the node that is at fault; empty where no node is, or any would do."""
    codes: tuple[str, ...] = ()
    """Right causes; none where only the catch and the node are asked for."""
    native: bool = False


def _attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto:
    return next(attribute for attribute in node.attribute if attribute.name == name)


def _set(node: onnx.NodeProto, name: str, value: Any) -> None:
    node.attribute.remove(_attribute(node, name))
    node.attribute.append(helper.make_attribute(name, value))


def _get(node: onnx.NodeProto, name: str) -> Any:
    return helper.get_attribute_value(_attribute(node, name))


def _node(model: onnx.ModelProto, op_type: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.op_type.startswith(op_type))


def _planted(
    conversion: Conversion, name: str, change: Callable[[onnx.ModelProto], None]
) -> Conversion:
    model = onnx.load(conversion.path)
    change(model)
    path = conversion.path.with_name(f"{name}.onnx")
    onnx.save(model, path)
    return replace(conversion, name=name, path=path)


def _branches(model: onnx.ModelProto) -> None:
    node = _node(model, "TreeEnsemble")
    modes = [b"BRANCH_LT" if mode == b"BRANCH_LEQ" else mode for mode in _get(node, "nodes_modes")]
    _set(node, "nodes_modes", modes)


def _branches_included(model: onnx.ModelProto) -> None:
    node = _node(model, "TreeEnsemble")
    modes = [b"BRANCH_LEQ" if mode == b"BRANCH_LT" else mode for mode in _get(node, "nodes_modes")]
    _set(node, "nodes_modes", modes)


def _one_leaf(model: onnx.ModelProto) -> None:
    node = _node(model, "TreeEnsemble")
    weights = list(_get(node, "target_weights"))
    weights[len(weights) // 2] *= 1.5
    _set(node, "target_weights", weights)


def _base_values(model: onnx.ModelProto) -> None:
    node = _node(model, "TreeEnsemble")
    node.attribute.remove(_attribute(node, "base_values"))


def _thresholds_rounded(model: onnx.ModelProto) -> None:
    node = _node(model, "TreeEnsemble")
    values = np.asarray(_get(node, "nodes_values"), np.float32)
    _set(node, "nodes_values", values.astype(np.float16).astype(np.float32).tolist())


def _missing_tracks(model: onnx.ModelProto) -> None:
    node = _node(model, "TreeEnsemble")
    tracks = [1 - track for track in _get(node, "nodes_missing_value_tracks_true")]
    _set(node, "nodes_missing_value_tracks_true", tracks)


def _swapped(name: str, op_type: str) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        node = _node(model, op_type)
        names = list(_get(node, name))
        names[0], names[1] = names[1], names[0]
        _set(node, name, names)

    return change


def _columns_gathered(model: onnx.ModelProto) -> None:
    """The columns of the last output in another order."""
    output = model.graph.output[1].name
    producer = next(node for node in model.graph.node if output in node.output)
    producer.output[list(producer.output).index(output)] = "in_order"
    model.graph.initializer.append(numpy_helper.from_array(np.array([2, 0, 1]), "other_order"))
    model.graph.node.append(
        helper.make_node("Gather", ["in_order", "other_order"], [output], "Reorder", axis=1)
    )


def _scaled(name: str, op_type: str, factor: float) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        node = _node(model, op_type)
        values = list(_get(node, name))
        values[0] *= factor
        _set(node, name, values)

    return change


def _no_post_transform(model: onnx.ModelProto) -> None:
    _set(_node(model, "TreeEnsemble"), "post_transform", "NONE")


def _one_weight(model: onnx.ModelProto) -> None:
    """One number of the largest matrix a little off."""
    tensor = max(model.graph.initializer, key=lambda tensor: int(np.prod(tensor.dims)))
    array = numpy_helper.to_array(tensor).copy()
    array.reshape(-1)[array.size // 2] *= 1.05
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _epsilon(model: onnx.ModelProto) -> None:
    """An epsilon of 1e-5 where the reference has 1e-3."""
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.size == 1 and abs(float(array.reshape(-1)[0]) - 1e-3) < 1e-9:
            tensor.CopyFrom(numpy_helper.from_array(np.full_like(array, 1e-5), tensor.name))


_PLANTED: list[tuple[str, str, Callable[[onnx.ModelProto], None], str, tuple[str, ...]]] = [
    ("branch-below", "forest", _branches, "TreeEnsemble", ("comparison",)),
    ("branch-below-boosting", "boosting", _branches, "TreeEnsemble", ("comparison",)),
    ("half-thresholds", "tree-regressor", _thresholds_rounded, "TreeEnsemble", ("precision",)),
    ("one-leaf", "forest-regressor", _one_leaf, "TreeEnsemble", ()),
    ("no-base", "boosting", _base_values, "TreeEnsemble", ()),
    (
        "zipmap-order",
        "logistic",
        _swapped("classlabels_int64s", "ZipMap"),
        "ZipMap",
        ("output-order",),
    ),
    (
        "class-order",
        "gaussian-nb",
        _swapped("classlabels_int64s", "ZipMap"),
        "ZipMap",
        ("output-order",),
    ),
    ("column-order", "logistic-scaled", _columns_gathered, "Gather", ("output-order",)),
    (
        "one-hot-order",
        "strings",
        _swapped("cats_strings", "OneHotEncoder"),
        "OneHotEncoder",
        ("output-order",),
    ),
    ("scaler", "logistic-scaled", _scaled("scale", "Scaler", 1.01), "Scaler", ()),
    ("offset", "lasso-scaled", _scaled("offset", "Scaler", 0.0), "Scaler", ()),
    (
        "coefficient",
        "ridge",
        _scaled("coefficients", "LinearRegressor", 1.02),
        "LinearRegressor",
        (),
    ),
    ("post-transform", "lightgbm-classifier", _no_post_transform, "", ()),
    ("missing-values", "lightgbm-missing", _missing_tracks, "TreeEnsemble", ()),
    ("mlp-weight", "mlp", _one_weight, "MatMul", ()),
    ("pca-weight", "pca", _one_weight, "MatMul", ()),
    ("numpy-epsilon", "numpy-norm", _epsilon, "Add", ()),
    ("jax-weight", "jax-mlp", _one_weight, "Gemm", ()),
    ("keras-weight", "keras-dense", _one_weight, "Gemm", ()),
    ("xgboost-branches", "xgboost", _branches_included, "TreeEnsemble", ("comparison",)),
    ("xgboost-leaf", "xgboost", _one_leaf, "TreeEnsemble", ()),
    ("xgboost-missing-values", "xgboost-missing", _missing_tracks, "TreeEnsemble", ()),
]


def planted(conversions: dict[str, Conversion]) -> Iterator[Fault]:
    """Each change in a copy of a healthy file; one whose framework is not installed is left out."""
    for name, origin, change, op_type, codes in _PLANTED:
        if origin in conversions:
            conversion = _planted(conversions[origin], name, change)
            yield Fault(name=name, conversion=conversion, op_type=op_type, codes=codes)


def native(folder: Path) -> Iterator[Fault]:
    """Conversions that are wrong as the converter makes them."""
    x, _ = healthy.table()
    for conversion in healthy.lightgbm_files(folder):
        yield Fault(
            name=f"{conversion.name}-thresholds",
            conversion=conversion,
            op_type="TreeEnsemble",
            codes=("precision",),
            native=True,
        )
        mended = replace(
            healthy.with_thresholds_rounded_down(conversion), example=x[:5].astype(np.float64)
        )
        yield Fault(
            name=f"{conversion.name}-float64-inputs",
            conversion=mended,
            codes=("precision",),
            native=True,
        )
    try:
        half = healthy.openvino_conversion(folder, half=True)
        yield Fault(name="openvino-half-weights", conversion=half, native=True)
    except ImportError:
        print("left out, since OpenVINO is not installed: openvino-half-weights")
    yield Fault(
        name="neighbours-far-out",
        conversion=healthy.neighbours(folder),
        native=True,
    )
