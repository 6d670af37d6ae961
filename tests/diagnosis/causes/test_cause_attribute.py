"""The cause `attribute`: other values of attributes and arguments."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import helper
from support import workbenches
from support.module_workbenches import file_of, node
from support.workbenches import without_tally

from onnxproof.diagnosis.causes import attribute
from onnxproof.diagnosis.counterfactuals.attribute_values import (
    OtherValue,
    other_arguments,
    other_attributes,
)

X = {"x": np.array([[-2.0, 1.0, -0.5], [3.0, -4.0, 0.25]], np.float32)}


@pytest.mark.parametrize(
    ("factor", "words"),
    [(1.0, "gives what the module gives"), (1.04, "comes nearer to what the module gives")],
)
def test_an_attribute_gives_what_the_module_gives_only_where_it_does(
    factor: float, words: str, tmp_path: Path
) -> None:
    wrong = file_of([node("LeakyRelu", "x", alpha=0.5)], X)
    nodes = [node("LeakyRelu", "x", output="leaky", alpha=0.1), node("Mul", "leaky", "factor")]
    right = file_of(nodes, X, {"factor": np.array(factor, np.float32)})
    bench = workbenches.workbench(tmp_path, wrong, right, X, nodes=["y"])
    value = OtherValue(name="alpha", present=0.5, other=0.1)
    tried, left = attribute._try_attribute(bench, bench.nodes[0], value)
    assert without_tally(tried.evidence).endswith(f"is 0.5, and 0.1 {words}")
    assert tried.proven == (factor == 1.0)
    assert left == pytest.approx(1 - 1 / factor, abs=1e-6)


def bench_of(node: Any, arguments: dict[str, Any] | None = None) -> Any:
    entry = None if arguments is None else SimpleNamespace(arguments=arguments)
    return SimpleNamespace(
        model=SimpleNamespace(opset_import=[helper.make_opsetid("", 18)]),
        counterpart=lambda node: entry,
        nodes_and_producers=[node],
        constants=lambda node: [],
    )


def test_the_modules_own_number_is_tried_before_the_usual_ones() -> None:
    located = helper.make_node("LeakyRelu", ["x"], ["y"])
    values = list(other_attributes(bench_of(located, {"negative_slope": 0.37}), located))
    assert {value.name for value in values} == {"alpha"}
    assert values[0].other == 0.37
    assert values[0].present == pytest.approx(0.01)  # the standard's default
    assert 0.2 in [value.other for value in values]


def test_pads_are_exchanged_and_made_equal() -> None:
    located = helper.make_node("Conv", ["x", "w"], ["y"], pads=[0, 1, 2, 3])
    values = other_attributes(bench_of(located), located)
    pads = [value.other for value in values if value.name == "pads"]
    assert pads == [[2, 3, 0, 1], [3] * 4, [1] * 4, [0] * 4, [1] * 4]


@pytest.mark.parametrize(
    ("name", "value", "others"),
    [
        ("keepdim", True, [False]),
        ("approximate", "none", ["none", "tanh"]),
        ("dim", 1, list(range(-4, 4))),
        ("eps", 1e-5, [0.3, 1e-5, 1e-6, 1e-12, 0.0, 1.0, 2.0, 0.5]),
        ("stride", [2, 3], [[1, 1], [0, 0], [3, 2]]),
        ("shifts", [2, -3], [[1, 1], [0, 0], [-3, 2], [-2, 3]]),
        ("groups", 2, [0, 1, -2, 1, 3]),
        ("memory_format", "x", []),
    ],
)
def test_other_values_of_an_argument(name: str, value: Any, others: list[Any]) -> None:
    located = helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.3)
    found = other_arguments(bench_of(located), name, value)
    assert found == pytest.approx(others) if name == "eps" else found == others
