"""Trees of every library in one form, and the faults that only a row on a split or in a leaf shows."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxproof
from onnxproof.reference.loaders._trees import Tree, trees_of
from onnxproof.results import Verdict

X = np.random.default_rng(2).normal(size=(200, 4)).astype(np.float32)
Y = X[:, 0] * 2 + np.sin(3 * X[:, 1])


def _boosted(x: Any = X) -> Any:
    lightgbm = pytest.importorskip("lightgbm")
    return lightgbm.LGBMRegressor(n_estimators=6, verbose=-1, n_jobs=1).fit(x, Y)


def _models() -> dict[str, Any]:
    from sklearn.ensemble import (
        ExtraTreesRegressor,
        GradientBoostingRegressor,
        HistGradientBoostingRegressor,
    )

    return {
        "extra": ExtraTreesRegressor(3, max_depth=4, random_state=0).fit(X, Y),
        "boosting": GradientBoostingRegressor(n_estimators=3, random_state=0).fit(X, Y),
        "histograms": HistGradientBoostingRegressor(max_iter=3).fit(X, Y),
        "lightgbm": _boosted(),
    }


def _leaf_of(tree: Tree, row: Any) -> int:
    node = 0
    while tree.columns[node] >= 0:
        goes_left = row[tree.columns[node]] <= tree.thresholds[node]
        node = tree.left[node] if goes_left else tree.right[node]
    return node


def _inside(box: dict[int, tuple[float, float]]) -> Any:
    row = np.zeros(X.shape[1])
    for column, (low, high) in box.items():
        row[column] = (max(low, -1e3) + min(high, 1e3)) / 2
    return row


def _xgboost(**options: Any) -> Any:
    xgboost = pytest.importorskip("xgboost")
    return xgboost.XGBRegressor(n_estimators=5, max_depth=3, n_jobs=1, **options).fit(X, Y)


@pytest.mark.parametrize("name", ["extra", "boosting", "histograms", "lightgbm"])
def test_a_row_inside_of_its_bounds_reaches_every_leaf(name: str) -> None:
    for tree in trees_of(_models()[name]):
        leaves = [_leaf_of(tree, _inside(box)) for box in tree.leaves()]
        assert sorted(leaves) == [place for place, column in enumerate(tree.columns) if column < 0]


def test_the_trees_of_xgboost_are_its_own() -> None:
    model = _xgboost()
    own = model.apply(X)
    for place, tree in enumerate(trees_of(model)):
        ours = [_leaf_of(tree, row) for row in X]
        pairs = set(zip(ours, own[:, place].tolist(), strict=True))
        assert len(pairs) == len(set(ours)) == len(set(own[:, place].tolist()))


def _converted(model: Any, path: Path) -> Path:
    if type(model).__name__.startswith("LGBM"):
        from onnxmltools import convert_lightgbm
        from onnxmltools.convert.common.data_types import FloatTensorType

        types = [("x", FloatTensorType([None, X.shape[1]]))]
        onnx.save(convert_lightgbm(model, initial_types=types, target_opset=15), path)
        return path
    from skl2onnx import to_onnx

    onnx.save(to_onnx(model, X[:1], target_opset=18), path)
    return path


def _changed(path: Path, name: str, change: Any) -> Path:
    model = onnx.load(path)
    node = next(node for node in model.graph.node if node.op_type.startswith("TreeEnsemble"))
    attribute = next(attribute for attribute in node.attribute if attribute.name == name)
    value = change(helper.get_attribute_value(attribute))
    node.attribute.remove(attribute)
    node.attribute.append(helper.make_attribute(name, value))
    onnx.save(model, path)
    return path


def test_one_wrong_leaf_of_a_forest_is_caught(tmp_path: Path) -> None:
    from sklearn.ensemble import RandomForestRegressor

    model = RandomForestRegressor(10, random_state=0).fit(X, Y)
    weights_off = _changed(
        _converted(model, tmp_path / "m.onnx"),
        "target_weights",
        lambda weights: [*weights[:500], 1.5 * weights[500], *weights[501:]],
    )
    proof = onnxproof.verify(model, weights_off, X[:5], budget_s=60, explain=False)
    assert proof.verdict is Verdict.DIVERGED
    assert any(gap.case.startswith("leaves-") for gap in proof.gaps)


def test_thresholds_in_half_precision_are_proven_to_be(tmp_path: Path) -> None:
    from sklearn.tree import DecisionTreeRegressor

    model = DecisionTreeRegressor(max_depth=6).fit(X, Y)
    path = _changed(
        _converted(model, tmp_path / "m.onnx"),
        "nodes_values",
        lambda values: np.float16(values).astype(np.float32).tolist(),
    )
    proof = onnxproof.verify(model, path, X[:5], budget_s=60)
    assert proof.verdict is Verdict.DIVERGED
    assert [(cause.code, cause.proven) for cause in proof.causes[:1]] == [("precision", True)]
    assert "to float16" in proof.causes[0].evidence


def test_a_missing_value_on_the_other_side_is_a_fault_where_it_was_taught(tmp_path: Path) -> None:
    holed = X.copy()
    holed[::5, 0] = np.nan
    model = _boosted(holed)
    path = _changed(
        _converted(model, tmp_path / "m.onnx"),
        "nodes_missing_value_tracks_true",
        lambda tracks: [1 - track for track in tracks],
    )
    proof = onnxproof.verify(model, path, X[:5], budget_s=60, explain=False)
    assert proof.verdict is Verdict.DIVERGED
    wrong = {gap.case for gap in proof.gaps if gap.noise_ratio > 1000 and gap.domain is None}
    assert "missing-0" in wrong
