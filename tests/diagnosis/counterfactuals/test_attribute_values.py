"""Other values of attributes and arguments: windows, words, flags and axes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from support.module_workbenches import file_of, node
from support.workbenches import workbench

from onnxproof.diagnosis.counterfactuals.attribute_values import (
    other_arguments,
    other_attributes,
)
from onnxproof.diagnosis.counterfactuals.workbench import Workbench

X = np.zeros((1, 2, 4, 4), np.float32)


def bench_of(folder: Path, located: Any) -> Workbench:
    constants = {"w": np.ones((2, 2, 2, 2), np.float32)}
    file = file_of([located], {"x": X}, constants)
    return workbench(folder, file, X, {"x": X}, nodes=["y"])


def others(folder: Path, located: Any) -> dict[str, list[Any]]:
    """Other values by the name of the attribute."""
    by_name: dict[str, list[Any]] = {}
    for value in other_attributes(bench_of(folder, located), located):
        by_name.setdefault(value.name, []).append(value.other)
    return by_name


def test_windows_are_turned_round_and_made_equal_on_both_axes(tmp_path: Path) -> None:
    values = others(tmp_path, node("Conv", "x", "w", strides=[1, 3], dilations=[2, 2]))
    assert values["strides"] == [[3, 1], [3, 3], [1, 1], [1, 1], [2, 2], [3, 3], [4, 4]]
    assert [2, 2] not in values["dilations"]
    assert [1, 1] in values["dilations"]
    assert "pads" not in values  # it has none, and the standard names no default
    assert "kernel_shape" not in values


def test_a_window_along_one_axis_has_no_other(tmp_path: Path) -> None:
    assert "strides" not in others(tmp_path, node("Conv", "x", "w", strides=[3]))


def test_a_word_has_the_other_words_of_its_attribute_but_not_its_own(tmp_path: Path) -> None:
    modes = others(tmp_path, node("Pad", "x", "w", mode="reflect"))["mode"]
    assert "reflect" not in modes
    assert {"constant", "edge", "wrap"} <= set(modes)
    default = others(tmp_path, node("Pad", "x", "w"))["mode"]
    assert "constant" not in default  # the standard's default counts as its own
    assert "reflect" in default


def test_flags_and_axes_have_what_they_are_not(tmp_path: Path) -> None:
    values = others(tmp_path, node("ArgMax", "x", axis=2, select_last_index=1))
    assert values["select_last_index"] == [0]
    assert values["keepdims"] == [0]
    assert values["axis"] == [-4, -3, -2, -1, 0, 1, 3]


def test_a_recurrent_cell_may_lose_its_clip_and_its_activations(tmp_path: Path) -> None:
    values = others(tmp_path, node("LSTM", "x", "w", "w", clip=2.0, hidden_size=3))
    assert values["clip"] == [None]
    assert values["input_forget"] == [1]
    assert "hidden_size" not in values
    assert "activations" not in values  # it has none that it could lose


def test_an_operator_without_a_schema_has_no_other_values(tmp_path: Path) -> None:
    unknown = helper.make_node("Nothing", ["x"], ["y"], name="y", domain="my.own", alpha=2.0)
    assert others(tmp_path, unknown) == {}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("divisor_override", 4, [2, 0, 1, -4, 3, 5, None]),
        ("scale", None, [0.5, 2.0, 0.0, 1.0, 2.0]),
        ("alpha", 1, [0.5, 2.0, 0.0, 1.0, 2.0]),
        ("dim", [0, 1], [[1, 1], [0, 0], [1, 0]]),
        ("padding", [3, 4], [[5, 6], [1, 1], [0, 0], [4, 3]]),
        ("size", [], []),
        ("name", "x", []),
        ("device", None, []),
    ],
)
def test_arguments_get_the_numbers_and_lists_of_the_located_node(
    name: str, value: Any, expected: list[Any], tmp_path: Path
) -> None:
    attributes: dict[str, Any] = {"alpha": 0.5, "beta": 2.0}
    if name == "padding":
        attributes = {"pads": [5, 6, 7, 8]}
    bench = bench_of(tmp_path, node("Custom", "x", **attributes))
    assert other_arguments(bench, name, value) == expected
