"""The cause `precision`: casts to a narrower type."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from support.module_workbenches import file_of, node
from support.workbenches import workbench

from onnxproof.diagnosis.causes import precision
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.results import Location, Stage

X = {"x": np.linspace(0.1, 3, 6, dtype=np.float32).reshape(2, 3)}
LARGE = {"x": np.array([2**40 + 3, 7, 2**33 + 1], np.int64)}


def cast(name: str, output: str, dtype: int) -> Any:
    return node("Cast", name, output=output, to=dtype)


def test_a_cast_to_half_precision_is_named_though_another_node_was_located(tmp_path: Path) -> None:
    nodes = [
        cast("x", "half", TensorProto.FLOAT16),
        cast("half", "back", TensorProto.FLOAT),
        node("Sin", "back"),
    ]
    bench = workbench(tmp_path, file_of(nodes, X), np.sin(X["x"]), X, nodes=["y"])
    tried = precision.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "precision")
    assert tried.evidence == "without the cast to float16 at half the answers are right"
    assert tried.fix is not None
    assert tried.fix.what == "take out the cast half"


def test_integers_that_a_cast_cuts_have_their_own_code(tmp_path: Path) -> None:
    nodes = [
        cast("x", "narrow", TensorProto.INT32),
        cast("narrow", "wide", TensorProto.INT64),
        node("Add", "wide", "one"),
    ]
    file = file_of(nodes, LARGE, {"one": np.array(1)}, dtype=TensorProto.INT64)
    bench = workbench(tmp_path, file, LARGE["x"] + 1, LARGE, nodes=["narrow"])
    tried = precision.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "integer-width")
    assert tried.evidence == "without the cast to int32 at narrow the answers are right"


@pytest.mark.xfail(
    strict=True, reason="bug: a cast that widens is taken for one that narrows, and named"
)
def test_two_casts_that_only_together_explain_it_are_taken_out_together(tmp_path: Path) -> None:
    nodes = [
        cast("x", "first", TensorProto.FLOAT16),
        cast("first", "a", TensorProto.FLOAT),
        node("Sin", "a", output="s"),
        cast("s", "second", TensorProto.FLOAT16),
        cast("second", "y", TensorProto.FLOAT),
    ]
    bench = workbench(tmp_path, file_of(nodes, X), np.sin(X["x"]), X, nodes=["first"])
    tried = precision.test(bench)
    assert isinstance(tried, Tried)
    assert tried.evidence.startswith("without the cast to float16 at first, ")


def test_a_harmless_cast_beside_another_fault_is_not_blamed(tmp_path: Path) -> None:
    whole = {"x": np.array([[1.0, 2.0, 3.0]], np.float32)}
    nodes = [
        cast("x", "half", TensorProto.FLOAT16),  # holds small whole numbers
        cast("half", "back", TensorProto.FLOAT),
        node("Cos", "back"),
    ]
    bench = workbench(tmp_path, file_of(nodes, whole), np.sin(whole["x"]), whole, nodes=["y"])
    assert precision.test(bench) == "no cast makes the difference"


def test_a_graph_without_casts_loses_digits_only_at_the_stage_of_precision(tmp_path: Path) -> None:
    bench = workbench(tmp_path, file_of([node("Sin", "x")], X), X["x"], X, nodes=["y"])
    assert precision.test(bench) == "the graph casts nothing to a narrower type"


@pytest.mark.parametrize(
    ("inputs", "dtype", "code"),
    [(X, TensorProto.FLOAT, "precision"), (LARGE, TensorProto.INT64, "integer-width")],
)
def test_what_the_standard_itself_loses_is_named_by_what_the_node_reads(
    inputs: dict[str, Any], dtype: int, code: str, tmp_path: Path
) -> None:
    file = file_of([node("Mul", "x", "x")], inputs, dtype=dtype)
    bench = workbench(tmp_path, file, inputs["x"] * 3, inputs, nodes=["y"])
    location = Location(stage=Stage.PRECISION, nodes=("y",), evidence="right in float64")
    bench = Workbench(
        bench.scene,
        replace(bench.located, location=location),
        cases=bench.cases,
        policy=bench.policy,
    )
    tried = precision.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, code)
    assert tried.evidence == "right in float64: y (Mul) loses what it computes"
