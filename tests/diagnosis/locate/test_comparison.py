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
    places = [value.place for value in counterparts(graph, 1, comparison, reference)]
    assert places == [1, 2, 0]


def fork(first: Array, second: Array, source: Array) -> list[TracedValue]:
    """Two values that are computed from one, such as a query and a key."""
    values = traced(source, first, second)
    values[2].inputs = (0,)
    return values


def test_a_value_that_the_file_has_elsewhere_is_the_last_counterpart(values: list[Array]) -> None:
    source, query, key, _ = values
    nodes = [
        helper.make_node("Relu", ["x"], ["v0"], name="n0"),
        helper.make_node("Exp", ["v0"], ["v1"], name="query"),
        helper.make_node("Neg", ["v0"], ["v2"], name="key"),
    ]
    graph = Graph.of_nodes(nodes, static=(), inputs=["x"], outputs=["v1", "v2"])
    seen = {"v0": sketch(source), "v1": sketch(query), "v2": sketch(query * 1.1)}
    options = fork(query, key, source)
    comparison = compare(graph, match(seen, options, TOLERANCE), TOLERANCE)
    assert comparison.origins == [2]
    places = [option.place for option in counterparts(graph, 2, comparison, options)]
    assert places == [2, 1, 0]


def test_the_counterpart_of_a_node_behind_wrong_ones_is_near_the_right_values_before_them(
    values: list[Array],
) -> None:
    """The value of the far end is nearer by its numbers."""
    graph = chain("Relu", "Exp", "Neg")
    options = traced(*values)
    for place in range(len(options), len(options) + 12):
        more = traced(*values)[3]
        more.place = place
        more.inputs = (place - 1,)
        more.sketch = sketch(values[3] + place)
        options.append(more)
    far = values[3] + len(options) - 1
    seen = {"v0": sketch(values[0]), "v1": sketch(values[1] * 3), "v2": sketch(far * 1.01)}
    comparison = compare(graph, match(seen, options, TOLERANCE), TOLERANCE)
    assert comparison.downstream == [2]
    places = [option.place for option in counterparts(graph, 2, comparison, options)]
    assert places[:2] == [1, 2]
    assert places.index(len(options) - 1) > 4


def test_where_steps_do_not_stop_a_node_it_is_right_and_the_one_behind_it_is_the_origin(
    values: list[Array],
) -> None:
    graph = chain("Relu", "Exp", "Neg")
    options = traced(*values, v1=2)
    seen = {"v0": sketch(values[0]), "v1": sketch(values[1]), "v2": sketch(values[3] * 1.5)}
    matches = match(seen, options, TOLERANCE)
    assert compare(graph, matches, TOLERANCE).stopped == [1]
    without = compare(graph, matches, TOLERANCE, stops=False)
    assert without.origins == [2] and without.stopped == []


@pytest.mark.parametrize(("length", "origin"), [(20, 1), (3, 5)])
def test_a_saturated_result_excuses_no_more_than_an_operation_before_it(
    length: int, origin: int
) -> None:
    """A softmax of zeros and ones is right whatever came into it: far behind a fault it proves nothing of what lies between."""
    rng = np.random.default_rng(4)
    values = [rng.standard_normal((4, 6)) for _ in range(24)]
    graph = chain("Relu", *["Neg"] * length, "Softmax", "Exp")
    seen = {f"v{k}": sketch(rng.standard_normal((4, 6))) for k in range(length + 3)}
    seen["v0"] = sketch(values[0])
    seen[f"v{length + 1}"] = sketch(values[length + 1])
    comparison = compare(graph, match(seen, traced(*values), TOLERANCE), TOLERANCE)
    assert comparison.origins[0] == origin


def test_a_right_mean_does_not_excuse_elements_whose_other_consumer_is_wrong() -> None:
    """The columns are in a wrong order: their mean is right."""
    rng = np.random.default_rng(6)
    source, true = rng.standard_normal((9, 6)), rng.standard_normal((9, 6))
    moved = np.roll(true, 1, axis=1) * 2 - true
    mean = true.mean(axis=1)
    nodes = [
        helper.make_node("Relu", ["x"], ["s"], name="first"),
        helper.make_node("Neg", ["s"], ["v"], name="guilty"),
        helper.make_node("ReduceMean", ["v"], ["m"], name="mean"),
        helper.make_node("Sub", ["v", "m"], ["y"], name="centred"),
    ]
    graph = Graph.of_nodes(nodes, static=(), inputs=["x"], outputs=["y"])
    seen = {
        "s": sketch(source),
        "v": sketch(moved),
        "m": sketch(mean),
        "y": sketch(moved - mean[:, None]),
    }
    options = traced(source, true, mean, true - mean[:, None])
    comparison = compare(graph, match(seen, options, TOLERANCE), TOLERANCE)
    assert comparison.origins == [1]
