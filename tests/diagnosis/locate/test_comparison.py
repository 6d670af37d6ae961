"""On hand-made graphs: which nodes are wrong while their inputs are right, and which traced value each should have been."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

from onnxproof.diagnosis.locate.comparison import compare, counterparts
from onnxproof.diagnosis.locate.match import match
from onnxproof.numerics.sketch import sketch
from onnxproof.onnxmodel.graph import Graph
from onnxproof.reference.traced_value import TracedValue

Array = np.ndarray[Any, Any]
TOLERANCE = 1e-6


def chain(*operators: str) -> Graph:
    """x -> v0 -> v1 -> ..., one node each."""
    names = ["x", *(f"v{k}" for k in range(len(operators)))]
    nodes = [
        helper.make_node(operator, [names[k]], [names[k + 1]], name=f"n{k}")
        for k, operator in enumerate(operators)
    ]
    return Graph.of_nodes(nodes, static=(), inputs=["x"], outputs=[names[-1]])


def traced(*values: Array, **outer: int) -> list[TracedValue]:
    """Each computed from the one before; `v1=2`: the second is an inner step of the third."""
    return [
        TracedValue(
            place=place,
            op=f"op{place}",
            sketch=sketch(value),
            dtype=str(value.dtype),
            inputs=tuple(range(max(0, place - 1), place)),
            module="",
            source=None,
            outer=outer.get(f"v{place}"),
        )
        for place, value in enumerate(values)
    ]


@pytest.fixture
def values() -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((4, 6)) for _ in range(4)]


def test_the_first_wrong_node_is_the_origin(values: list[Array]) -> None:
    graph = chain("Relu", "Exp", "Neg")
    seen = {"v0": sketch(values[0]), "v1": sketch(values[1] * 1.1), "v2": sketch(values[2] * 1.1)}
    comparison = compare(graph, match(seen, traced(*values), TOLERANCE), TOLERANCE)
    assert comparison.origins == [1]
    assert comparison.downstream == [2]
    assert comparison.compared == 3


def test_a_step_that_the_module_never_computes_is_excused_by_a_right_value(
    values: list[Array],
) -> None:
    graph = chain("Relu", "Exp", "Neg")
    seen = {"v0": sketch(values[0]), "v1": sketch(values[3]), "v2": sketch(values[2])}
    matches = match(seen, traced(*values[:3]), TOLERANCE)
    assert compare(graph, matches, TOLERANCE).suspects == []
    assert compare(graph, matches, TOLERANCE, excuse=False).origins == [1]


def test_a_node_that_stops_inside_an_operation_is_the_origin(values: list[Array]) -> None:
    """The file goes from the inner step v1 to something wrong; the whole result is never computed."""
    graph = chain("Relu", "Softmax", "MatMul")
    seen = {"v0": sketch(values[0]), "v1": sketch(values[1]), "v2": sketch(values[3] * 5)}
    reference = traced(values[0], values[1], values[2], v1=2)
    comparison = compare(graph, match(seen, reference, TOLERANCE), TOLERANCE)
    assert comparison.origins == [1]
    assert comparison.nearest[1].place == 1


def test_a_value_that_could_not_be_read_is_skipped_with_a_reason(values: list[Array]) -> None:
    graph = chain("Relu", "Exp")
    seen = {"v1": sketch(values[1])}
    comparison = compare(graph, match(seen, traced(*values), TOLERANCE), TOLERANCE)
    assert comparison.skipped == {"n0": "its value could not be read"}


def test_a_transposed_copy_is_right_and_a_moved_one_is_not(values: list[Array]) -> None:
    reference = traced(values[0])
    transposed = match({"v": sketch(values[0].T.copy())}, reference, TOLERANCE)["v"]
    assert transposed.gap == 0.0 and not transposed.same_layout
    moved = match({"v": sketch(np.roll(values[0], 1))}, reference, TOLERANCE)["v"]
    assert moved.gap > 0.1 and moved.traced is reference[0]


def test_integers_are_right_only_where_they_are_equal() -> None:
    reference = traced(np.arange(1000, 1012))
    assert match({"v": sketch(np.arange(1000, 1012))}, reference)["v"].is_right(1.0)
    assert not match({"v": sketch(np.arange(1001, 1013))}, reference)["v"].is_right(1.0)


def test_the_counterpart_is_the_value_that_follows_from_the_inputs(values: list[Array]) -> None:
    graph = chain("Relu", "Exp", "Neg")
    seen = {"v0": sketch(values[0]), "v1": sketch(values[3] * 7), "v2": sketch(values[3] * 9)}
    reference = traced(*values[:3])
    comparison = compare(graph, match(seen, reference, TOLERANCE), TOLERANCE)
    assert counterparts(graph, 1, comparison, reference)[0].place in (0, 1)
    assert [value.place for value in counterparts(graph, 1, comparison, reference)][-1] == 2
