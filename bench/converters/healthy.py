"""Healthy conversions: scikit-learn by skl2onnx, LightGBM by onnxmltools, numpy functions, JAX by jax2onnx, Keras by its own exporter."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A reference, the file that a converter made of it, and an example."""

    name: str
    kind: str
    """The kind of reference."""
    reference: Any
    path: Path
    example: Any


Family = Callable[[Path], Iterator[Conversion]]


def table(rows: int = 300, columns: int = 6, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns)) * np.array([1, 10, 0.1, 3, 100, 1])[:columns] + 2
    y = x[:, 0] * 2 + np.sin(x[:, 1]) + 0.02 * x[:, 4] + 0.1 * rng.normal(size=rows)
    return x.astype(np.float32), y


def _labels(y: Array, classes: int = 3) -> Array:
    edges = np.quantile(y, np.linspace(0, 1, classes + 1)[1:-1])
    return np.digitize(y, edges)


def _sklearn_models() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    from sklearn import (
        decomposition,
        ensemble,
        linear_model,
        naive_bayes,
        neural_network,
        pipeline,
        preprocessing,
        svm,
        tree,
    )

    x, y = table()
    labels = _labels(y)
    scaled = preprocessing.StandardScaler
    yield "logistic", linear_model.LogisticRegression(max_iter=2000).fit(x, labels), {}
    yield (
        "logistic-scaled",
        pipeline.make_pipeline(scaled(), linear_model.LogisticRegression()).fit(x, labels),
        {"zipmap": False},
    )
    yield "ridge", linear_model.Ridge().fit(x, y), {}
    yield "lasso-scaled", pipeline.make_pipeline(scaled(), linear_model.Lasso(0.01)).fit(x, y), {}
    yield "tree", tree.DecisionTreeClassifier(max_depth=6).fit(x, labels), {"zipmap": False}
    yield "tree-regressor", tree.DecisionTreeRegressor(max_depth=8).fit(x, y), {}
    yield (
        "forest",
        ensemble.RandomForestClassifier(40, max_depth=8, random_state=0).fit(x, labels),
        {},
    )
    yield "forest-regressor", ensemble.RandomForestRegressor(40, random_state=0).fit(x, y), {}
    yield "extra-trees", ensemble.ExtraTreesRegressor(40, random_state=0).fit(x, y), {}
    yield "boosting", ensemble.GradientBoostingRegressor(random_state=0).fit(x, y), {}
    yield (
        "boosting-classifier",
        ensemble.GradientBoostingClassifier(n_estimators=40, random_state=0).fit(x, labels),
        {},
    )
    yield "svc", svm.SVC(probability=True, random_state=0).fit(x, labels), {}
    yield "svr", svm.SVR().fit(x, y), {}
    yield "gaussian-nb", naive_bayes.GaussianNB().fit(x, labels), {}
    yield (
        "mlp",
        pipeline.make_pipeline(
            scaled(), neural_network.MLPClassifier((16,), max_iter=300, random_state=0)
        ).fit(x, labels),
        {},
    )
    yield "pca", pipeline.make_pipeline(scaled(), decomposition.PCA(3)).fit(x), {}
    yield "quantile", preprocessing.RobustScaler().fit(x), {}
    yield (
        "polynomial",
        pipeline.make_pipeline(
            preprocessing.MinMaxScaler(), preprocessing.PolynomialFeatures(2), linear_model.Ridge()
        ).fit(x, y),
        {},
    )
    yield (
        "adaboost",
        ensemble.AdaBoostClassifier(n_estimators=20, random_state=0).fit(x, labels),
        {},
    )


def sklearn_conversions(folder: Path) -> Iterator[Conversion]:
    """Every model of scikit-learn above, converted by skl2onnx for float32."""
    from skl2onnx import to_onnx

    x, _ = table()
    for name, model, options in _sklearn_models():
        converted = to_onnx(
            model, x[:1], options={id(model): options} if options else None, target_opset=18
        )
        path = folder / f"{name}.onnx"
        onnx.save(converted, path)
        yield Conversion(name=name, kind="scikit-learn", reference=model, path=path, example=x[:5])


def strings_conversion(folder: Path) -> Iterator[Conversion]:
    """Columns of strings and numbers, encoded and classified: a string input."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    rng = np.random.default_rng(1)
    cities = np.array(["berlin", "paris", "rome"])[rng.integers(0, 3, 200)]
    ages = rng.normal(40, 10, 200).astype(np.float32)
    table = np.empty((200, 2), object)
    table[:, 0], table[:, 1] = cities, ages
    labels = np.where((ages > 40) ^ (cities == "rome"), "yes", "no")
    encode = ColumnTransformer(
        [("city", OneHotEncoder(handle_unknown="ignore"), [0]), ("age", StandardScaler(), [1])]
    )
    model = make_pipeline(encode, LogisticRegression()).fit(table, labels)
    types = [("city", StringTensorType([None, 1])), ("age", FloatTensorType([None, 1]))]
    path = folder / "strings.onnx"
    onnx.save(to_onnx(model, initial_types=types, target_opset=18), path)
    example = {"city": cities[:5, None], "age": ages[:5, None]}
    yield Conversion(
        name="strings", kind="scikit-learn", reference=model, path=path, example=example
    )


def neighbours(folder: Path) -> Conversion:
    """The nearest neighbours by squares in float32: right near the data, and lost where features reach 1e7."""
    from skl2onnx import to_onnx
    from sklearn.neighbors import KNeighborsRegressor

    x, y = table()
    model = KNeighborsRegressor(3).fit(x, y)
    path = folder / "neighbours.onnx"
    onnx.save(to_onnx(model, x[:1], target_opset=18), path)
    return Conversion(
        name="neighbours", kind="scikit-learn", reference=model, path=path, example=x[:5]
    )


def lightgbm_files(folder: Path) -> Iterator[Conversion]:
    """LightGBM's trees by onnxmltools, which rounds their float64 thresholds to the nearest float32."""
    import lightgbm
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType

    x, y = table()
    holed = x.copy()
    holed[::7, 1] = np.nan
    quiet: dict[str, Any] = {"verbose": -1, "n_jobs": 1}
    models = {
        "lightgbm": lightgbm.LGBMRegressor(n_estimators=30, **quiet).fit(x, y),
        "lightgbm-classifier": lightgbm.LGBMClassifier(n_estimators=10, **quiet).fit(x, _labels(y)),
        "lightgbm-missing": lightgbm.LGBMRegressor(n_estimators=20, **quiet).fit(holed, y),
    }
    for name, model in models.items():
        types = [("x", FloatTensorType([None, x.shape[1]]))]
        path = folder / f"{name}-as-converted.onnx"
        onnx.save(convert_lightgbm(model, initial_types=types, target_opset=15), path)
        yield Conversion(name=name, kind="LightGBM", reference=model, path=path, example=x[:5])


def with_thresholds_rounded_down(conversion: Conversion) -> Conversion:
    """The same file with each threshold at the largest float32 that is not above the model's own, so that no float32 changes its side."""
    waiting = [
        tree["tree_structure"] for tree in conversion.reference.booster_.dump_model()["tree_info"]
    ]
    own = set()
    while waiting:
        node = waiting.pop()
        if "threshold" in node:
            own.add(float(node["threshold"]))
            waiting += [node["left_child"], node["right_child"]]
    rounded = {float(np.float32(value)): value for value in own}
    model = onnx.load(conversion.path)
    node = next(node for node in model.graph.node if node.op_type.startswith("TreeEnsemble"))
    values = next(attribute for attribute in node.attribute if attribute.name == "nodes_values")
    for place, value in enumerate(values.floats):
        if value > rounded.get(value, value):
            values.floats[place] = float(np.nextafter(np.float32(value), np.float32(-np.inf)))
    path = conversion.path.with_name(f"{conversion.name}.onnx")
    onnx.save(model, path)
    return replace(conversion, path=path)


def lightgbm_conversions(folder: Path) -> Iterator[Conversion]:
    """LightGBM's trees with thresholds that were mended."""
    for conversion in lightgbm_files(folder):
        yield with_thresholds_rounded_down(conversion)


def xgboost_conversions(folder: Path) -> Iterator[Conversion]:
    """XGBoost's trees by onnxmltools: float32 thresholds, a sum that starts at the base score, missing values with a side of their own."""
    import xgboost
    from onnxmltools import convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    x, y = table()
    holed = x.copy()
    holed[::7, 1] = np.nan
    small: dict[str, Any] = {"n_estimators": 20, "max_depth": 4, "n_jobs": 1}
    models = {
        "xgboost": xgboost.XGBRegressor(**small).fit(x, y),
        "xgboost-classifier": xgboost.XGBClassifier(**small).fit(x, _labels(y)),
        "xgboost-missing": xgboost.XGBRegressor(**small).fit(holed, y),
    }
    for name, model in models.items():
        types = [("x", FloatTensorType([None, x.shape[1]]))]
        path = folder / f"{name}.onnx"
        onnx.save(convert_xgboost(model, initial_types=types, target_opset=15), path)
        yield Conversion(name=name, kind="XGBoost", reference=model, path=path, example=x[:5])


def numpy_conversions(folder: Path) -> Iterator[Conversion]:
    """Functions of numpy beside files that were written by hand."""
    from onnx import parser

    rng = np.random.default_rng(4)
    weight = rng.normal(size=(6, 4)).astype(np.float32)

    def normalized(x: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        return (centred / np.sqrt(variance + x.dtype.type(1e-3))) @ weight

    text = """<ir_version: 10, opset_import: ["" : 18]>
    numpy_norm (float[n, 6] x) => (float[n, 4] y) {
      mean = ReduceMean<keepdims = 1>(x, axis)
      centred = Sub(x, mean)
      square = Mul(centred, centred)
      variance = ReduceMean<keepdims = 1>(square, axis)
      shifted = Add(variance, epsilon)
      root = Sqrt(shifted)
      normal = Div(centred, root)
      y = MatMul(normal, weight)
    }"""
    model = parser.parse_model(text)
    for name, array in {
        "axis": np.array([-1]),
        "epsilon": np.float32([1e-3]),
        "weight": weight,
    }.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    path = folder / "numpy-norm.onnx"
    onnx.save(model, path)
    example = {"x": rng.normal(size=(3, 6)).astype(np.float32)}
    yield Conversion(
        name="numpy-norm",
        kind="function of numpy",
        reference=normalized,
        path=path,
        example=example,
    )


def jax_conversions(folder: Path) -> Iterator[Conversion]:
    """A small net in JAX by jax2onnx."""
    import jax
    import jax.numpy as jnp
    from jax2onnx import to_onnx

    rng = np.random.default_rng(5)
    first = jnp.asarray(rng.normal(size=(8, 16)) * 0.4, jnp.float32)
    second = jnp.asarray(rng.normal(size=(16, 3)) * 0.4, jnp.float32)

    @jax.jit
    def net(x: Any) -> Any:
        return jax.nn.softmax(jnp.tanh(x @ first) @ second, axis=-1)

    path = folder / "jax-mlp.onnx"
    onnx.save(to_onnx(net, inputs=[("n", 8)]), path)
    example = rng.normal(size=(3, 8)).astype(np.float32)
    yield Conversion(name="jax-mlp", kind="JAX", reference=net, path=path, example=example)


def keras_conversions(folder: Path) -> Iterator[Conversion]:
    """A dense net of Keras (on JAX, so that it is no module of PyTorch), beside a file that was written from its weights."""
    import keras
    from onnx import parser

    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.LayerNormalization(epsilon=1e-3),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    text = """<ir_version: 10, opset_import: ["" : 18]>
    keras_dense (float[n, 8] x) => (float[n, 3] y) {
      first = Gemm(x, w0, w1)
      positive = Relu(first)
      normal = LayerNormalization<axis = -1, epsilon = 0.001>(positive, w2, w3)
      scores = Gemm(normal, w4, w5)
      y = Softmax<axis = -1>(scores)
    }"""
    file = parser.parse_model(text)
    for place, weight in enumerate(model.get_weights()):
        file.graph.initializer.append(onnx.numpy_helper.from_array(weight, f"w{place}"))
    path = folder / "keras-dense.onnx"
    onnx.save(file, path)
    example = np.random.default_rng(6).normal(size=(3, 8)).astype(np.float32)
    yield Conversion(name="keras-dense", kind="Keras", reference=model, path=path, example=example)


def graph_conversions(folder: Path) -> Iterator[Conversion]:
    """A file that ONNX Runtime's optimizer wrote, beside the one that it was made of."""
    import onnxruntime

    origin = next(numpy_conversions(folder)).path
    path = folder / "optimized.onnx"
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(str(origin), options, providers=["CPUExecutionProvider"])
    yield Conversion(
        name="optimized", kind="ONNX file", reference=str(origin), path=path, example=None
    )


def openvino_conversion(folder: Path, *, half: bool) -> Conversion:
    """A file that OpenVINO made of an ONNX file, beside it: its own default keeps the weights in half."""
    import openvino

    origin = next(numpy_conversions(folder)).path
    path = folder / f"openvino-{'half' if half else 'full'}.xml"
    openvino.save_model(openvino.convert_model(str(origin)), str(path), compress_to_fp16=half)
    return Conversion(
        name="openvino", kind="OpenVINO file", reference=str(path), path=origin, example=None
    )


def openvino_conversions(folder: Path) -> Iterator[Conversion]:
    """OpenVINO's own file, with its weights as they are."""
    yield openvino_conversion(folder, half=False)


FAMILIES: list[Family] = [
    sklearn_conversions,
    strings_conversion,
    lightgbm_conversions,
    xgboost_conversions,
    numpy_conversions,
    graph_conversions,
    openvino_conversions,
    jax_conversions,
    keras_conversions,
]


def families(names: list[str]) -> list[Family]:
    """Those of these names, or all."""
    return [
        family for family in FAMILIES if not names or family.__name__.partition("_")[0] in names
    ]


def converted(family: Family, folder: Path) -> Iterator[Conversion]:
    """The conversions of a family, if its framework is installed."""
    try:
        yield from family(folder)
    except ImportError as why:
        print(f"left out, since it is not installed: {family.__name__} ({why.name})")
