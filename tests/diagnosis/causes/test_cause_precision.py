"""The cause `precision`: casts to a narrower type."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from support.module_workbenches import case_of, file_of, node
from support.workbenches import without_tally, workbench

from onnxproof.diagnosis.causes import precision
from onnxproof.diagnosis.counterfactuals.workbench import ComparedCases, Tried, Workbench
from onnxproof.results import Location, Stage

X = {"x": np.linspace(0.1, 3, 6, dtype=np.float32).reshape(2, 3)}
SINE = file_of([node("Sin", "x")], X)
LARGE = {"x": np.array([2**40 + 3, 7, 2**33 + 1], np.int64)}


def cast(name: str, output: str, dtype: int) -> Any:
    return node("Cast", name, output=output, to=dtype)


def test_a_cast_to_half_precision_is_named_though_another_node_was_located(tmp_path: Path) -> None:
    nodes = [
        cast("x", "half", TensorProto.FLOAT16),
        cast("half", "back", TensorProto.FLOAT),
        node("Sin", "back"),
    ]
    bench = workbench(tmp_path, file_of(nodes, X), SINE, X, nodes=["y"])
    tried = precision.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "precision")
    assert without_tally(tried.evidence) == (
        "without the cast to float16 at half the answers are right"
    )
    assert tried.fix is not None
    assert tried.fix.what == "take out the cast half"


def test_integers_that_a_cast_cuts_have_their_own_code(tmp_path: Path) -> None:
    nodes = [
        cast("x", "narrow", TensorProto.INT32),
        cast("narrow", "wide", TensorProto.INT64),
        node("Add", "wide", "one"),
    ]
    file = file_of(nodes, LARGE, {"one": np.array(1)}, dtype=TensorProto.INT64)
    right = file_of([node("Add", "x", "one")], LARGE, {"one": np.array(1)}, dtype=TensorProto.INT64)
    small = [case_of({"x": np.arange(3) + n}, name=f"small {n}") for n in range(2)]
    cases = ComparedCases(agreeing=small)
    bench = workbench(tmp_path, file, right, LARGE, nodes=["narrow"], cases=cases)
    tried = precision.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "integer-width")
    assert without_tally(tried.evidence) == (
        "without the cast to int32 at narrow the answers are right"
    )


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


def at_stage_of_precision(bench: Workbench) -> Workbench:
    """The same workbench with its fault located where the standard itself loses digits."""
    location = Location(stage=Stage.PRECISION, nodes=("y",), evidence="right in float64")
    return Workbench(
        bench.scene,
        replace(bench.located, location=location),
        cases=bench.cases,
        policy=bench.policy,
    )


def test_what_the_standard_itself_loses_is_named_where_float64_keeps_it(tmp_path: Path) -> None:
    nodes = [node("Add", "x", "large", output="sum"), node("Sub", "sum", "large")]
    file = file_of(nodes, X, {"large": np.array(1e5, np.float32)})
    bench = workbench(tmp_path, file, file_of([node("Identity", "x")], X), X, nodes=["y"])
    tried = precision.test(at_stage_of_precision(bench))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "precision")
    assert without_tally(tried.evidence) == (
        "y (Sub) loses what it computes: "
        "with every operator of the file in float64 the answers are right"
    )


@pytest.mark.parametrize(
    ("inputs", "dtype", "code"),
    [(X, TensorProto.FLOAT, "precision"), (LARGE, TensorProto.INT64, "integer-width")],
)
def test_what_float64_loses_too_is_not_proven(
    inputs: dict[str, Any], dtype: int, code: str, tmp_path: Path
) -> None:
    file = file_of([node("Mul", "x", "x")], inputs, dtype=dtype)
    bench = workbench(tmp_path, file, inputs["x"] * 3, inputs, nodes=["y"])
    tried = precision.test(at_stage_of_precision(bench))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (False, code)
    assert tried.evidence == "right in float64: y (Mul) loses what it computes"
