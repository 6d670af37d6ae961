"""A suspect is confirmed by a true value in its place, and then what it reads is asked."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.two_files import experiment_on, first_round, normal, place_of, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.locate.comparison import Comparison
from onnxproof.diagnosis.locate.experiment import Experiment
from onnxproof.diagnosis.locate.upstream import (
    Upstream,
    are_one_operation,
    confirm_downstream,
    confirm_origin,
)
from onnxproof.numerics.sketch import sketch
from onnxproof.onnxmodel.graph import Graph
from onnxproof.reference.traced_value import TracedValue

X = normal(6, 6)
WEIGHT = normal(6, 6, seed=1)


def between(
    folder: Path, right: Sequence[onnx.NodeProto], wrong: Sequence[onnx.NodeProto]
) -> Experiment:
    constants = {
        "w": WEIGHT,
        "two": np.float32(2).reshape(()),
        "three": np.float32(3).reshape(()),
        "nearly_two": np.float32(2.01).reshape(()),
        "zero": np.array(0),
        "one": np.array(1),
        "0": np.array([0]),
        "3": np.array([3]),
        "6": np.array([6]),
        "shape": np.array([2, 9]),
    }
    models = [graph_model(nodes, {"x": X}, constants) for nodes in (right, wrong)]
    return experiment_on(scene_between(folder, *models, {"x": X}))


def scaled(factor: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("Mul", ["t", factor], ["m"], "scale"),
        helper.make_node("Sin", ["m"], ["y"], "sine"),
    ]


@pytest.fixture
def wrong_factor(tmp_path: Path) -> Experiment:
    return between(tmp_path, scaled("two"), scaled("three"))


def test_the_origin_that_its_true_value_fixes_is_confirmed(wrong_factor: Experiment) -> None:
    fix = confirm_origin(wrong_factor, first_round(wrong_factor))
    assert fix is not None and fix.true_value is not None
    assert fix.node == place_of(wrong_factor, "scale")
    assert fix.true_value.op == "Mul"


def test_an_origin_that_nothing_fixes_is_named_unconfirmed(wrong_factor: Experiment) -> None:
    blind = replace(wrong_factor, fetch=lambda place: None)
    current = first_round(wrong_factor)
    fix = confirm_origin(blind, current)
    assert fix is not None and fix.true_value is None
    assert (fix.node, fix.error) == (place_of(wrong_factor, "scale"), current.error)


def test_a_node_that_was_found_guilty_before_is_not_asked_again(wrong_factor: Experiment) -> None:
    current = first_round(wrong_factor)
    scale, sine = place_of(wrong_factor, "scale"), place_of(wrong_factor, "sine")
    later = confirm_origin(wrong_factor, replace(current, guilty=[scale]))
    assert later is not None and later.node == sine and later.true_value is None
    assert confirm_origin(wrong_factor, replace(current, guilty=[scale, sine])) is None


def test_downstream_of_the_origin_the_first_node_that_is_fixed_is_confirmed(
    wrong_factor: Experiment,
) -> None:
    fix = confirm_downstream(wrong_factor, first_round(wrong_factor))
    assert fix is not None and fix.true_value is not None
    assert fix.node == place_of(wrong_factor, "sine")
    assert fix.true_value.op == "Sin"


def transposed(op_type: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Sin", ["x"], ["s"], "sine"),
        helper.make_node(op_type, ["s"], ["r"], "turn"),
        helper.make_node("Mul", ["r", "w"], ["y"], "weigh"),
    ]


def test_a_transposition_that_does_nothing_is_blamed_and_not_what_reads_it(
    tmp_path: Path,
) -> None:
    experiment = between(tmp_path, transposed("Transpose"), transposed("Identity"))
    current = first_round(experiment)
    weigh = place_of(experiment, "weigh")
    assert current.comparison.origins == [weigh]
    fix = Upstream(experiment, current).earliest_fixing_producer(weigh)
    assert fix is not None and fix.true_value is not None
    assert fix.node == place_of(experiment, "turn")
    assert fix.true_value.op == "Transpose"
    assert fix.error < 1e-12


def rows(second: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("Gather", ["t", "zero"], ["a"], "first_row", axis=0),
        helper.make_node("Gather", ["t", second], ["b"], "second_row", axis=0),
        helper.make_node("Mul", ["b", "w"], ["c"], "weigh"),
        helper.make_node("Add", ["a", "c"], ["y"], "add"),
    ]


def test_an_index_that_takes_another_row_is_blamed_although_the_row_is_one_of_the_modules(
    tmp_path: Path,
) -> None:
    experiment = between(tmp_path, rows("one"), rows("zero"))
    current = first_round(experiment)
    weigh = place_of(experiment, "weigh")
    assert current.comparison.origins == [weigh]
    assert confirm_origin(experiment, current) is not None
    fix = Upstream(experiment, current).earliest_fixing_producer(weigh)
    assert fix is not None and fix.true_value is not None
    assert fix.node == place_of(experiment, "second_row")
    np.testing.assert_allclose(experiment.fetch(fix.true_value.place), np.tanh(X[1]), rtol=1e-6)


def parts(begin: str, end: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("Slice", ["t", "0", "3", "0"], ["a"], "upper"),
        helper.make_node("Slice", ["t", begin, end, "0"], ["b"], "lower"),
        helper.make_node("Reshape", ["b", "shape"], ["r"], "reshape"),
        helper.make_node("Sin", ["r"], ["s"], "sine"),
        helper.make_node("Reshape", ["a", "shape"], ["q"], "reshape_upper"),
        helper.make_node("Sub", ["q", "s"], ["y"], "minus"),
    ]


def test_the_way_up_goes_on_through_a_reshape_to_the_slice(tmp_path: Path) -> None:
    experiment = between(tmp_path, parts("3", "6"), parts("0", "3"))
    current = first_round(experiment)
    sine = place_of(experiment, "sine")
    assert current.comparison.origins == [sine]
    assert confirm_origin(experiment, current) is not None
    fix = Upstream(experiment, current).earliest_fixing_producer(sine)
    assert fix is not None
    assert fix.node == place_of(experiment, "lower")


def test_where_no_producer_is_to_blame_none_is_named(wrong_factor: Experiment) -> None:
    current = first_round(wrong_factor)
    upstream = Upstream(wrong_factor, current)
    assert upstream.earliest_fixing_producer(place_of(wrong_factor, "scale")) is None


def signs(factor: str) -> list[onnx.NodeProto]:
    """The signs are right with either factor, and excuse the value that they are computed from."""
    return [
        helper.make_node("Mul", ["x", factor], ["m"], "scale"),
        helper.make_node("Sign", ["m"], ["s"], "sign"),
        helper.make_node("Tanh", ["m"], ["t"], "tanh"),
        helper.make_node("Add", ["t", "s"], ["y"], "add"),
    ]


def test_a_small_error_behind_a_right_value_is_found(tmp_path: Path) -> None:
    experiment = between(tmp_path, signs("two"), signs("nearly_two"))
    current = first_round(experiment)
    assert current.comparison.origins == [place_of(experiment, "tanh")]
    fix = Upstream(experiment, current).hidden_fault()
    assert fix is not None and fix.true_value is not None
    assert fix.node == place_of(experiment, "scale")
    assert current.truths == {fix.node: fix.true_value}
    assert current.comparison.wrong_values[fix.node] == "m"


def test_a_large_error_is_not_looked_for_behind_right_values(tmp_path: Path) -> None:
    experiment = between(tmp_path, signs("two"), signs("three"))
    assert Upstream(experiment, first_round(experiment)).hidden_fault() is None


def value(place: int, inputs: tuple[int, ...] = (), outer: int | None = None) -> TracedValue:
    return TracedValue(
        place=place,
        op="op",
        sketch=sketch(X),
        dtype="float64",
        inputs=inputs,
        module="",
        source=None,
        outer=outer,
    )


def chain(*operators: str) -> Graph:
    names = ["x", *(f"v{k}" for k in range(len(operators)))]
    nodes = [
        helper.make_node(operator, [names[k]], [names[k + 1]])
        for k, operator in enumerate(operators)
    ]
    return Graph.of_nodes(nodes, static=(), inputs=["x"], outputs=names[-1:])


def test_two_nodes_are_one_operation_where_the_later_only_moves_what_the_first_computes() -> None:
    moved = chain("Sin", "Transpose", "Reshape")
    assert are_one_operation(moved, Comparison(), 0, 2, value(5))
    computed = chain("Sin", "Exp", "Reshape")
    assert not are_one_operation(computed, Comparison(), 0, 2, value(5))
    assert are_one_operation(computed, Comparison(), 1, 2, value(5))


def test_two_nodes_are_one_operation_where_the_true_value_reads_the_nearest_of_the_first() -> None:
    graph = chain("Sin", "Exp")
    assert are_one_operation(graph, Comparison(nearest={0: value(4)}), 0, 1, value(5, inputs=(4,)))
    assert not are_one_operation(
        graph, Comparison(nearest={0: value(3)}), 0, 1, value(5, inputs=(4,))
    )
    inner = Comparison(nearest={0: value(3, outer=5)})
    assert are_one_operation(graph, inner, 0, 1, value(5, inputs=(4,)))
    assert not are_one_operation(graph, Comparison(nearest={0: value(3)}), 0, 1, value(5))
