"""Faults one behind the other: each is found, replaced by the true value, and the rest compared again."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper
from support.two_files import experiment_on, normal, place_of, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.locate.comparison import Comparison
from onnxproof.diagnosis.locate.experiment import Experiment, observe
from onnxproof.diagnosis.locate.fault_search import FaultSearch

X = normal(4, 6)
CONSTANTS = {
    "two": np.float32(2).reshape(()),
    "three": np.float32(3).reshape(()),
    "half": np.float32(0.5).reshape(()),
    "six": np.float32(6).reshape(()),
    "shape": np.array([2, 4, 6]),
    "axis": np.array([0]),
    "w": normal(6, 5, seed=1),
    "other": normal(6, 5, seed=1) * np.float32(1.5),
}


def between(
    folder: Path, right: Sequence[onnx.NodeProto], wrong: Sequence[onnx.NodeProto]
) -> Experiment:
    models = [graph_model(nodes, {"x": X}, CONSTANTS) for nodes in (right, wrong)]
    return experiment_on(scene_between(folder, *models, {"x": X}))


def search_in(experiment: Experiment) -> tuple[FaultSearch, Comparison]:
    error = experiment.error()
    search = FaultSearch(experiment=experiment, initial_error=error, error=error)
    sketches, _ = observe(experiment.session, experiment.feeds)
    return search, search.run(sketches)


def steps(factor: str = "two", term: str = "half") -> list[onnx.NodeProto]:
    """sin(tanh(x) * factor) + term, and its square."""
    return [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("Mul", ["t", factor], ["m"], "scale"),
        helper.make_node("Sin", ["m"], ["s"], "sine"),
        helper.make_node("Add", ["s", term], ["a"], "shift"),
        helper.make_node("Mul", ["a", "a"], ["y"], "square"),
    ]


def names(search: FaultSearch) -> list[str]:
    return [search.experiment.graph.name(node) for node in search.guilty]


def test_one_fault_is_found_and_fixes_the_answers(tmp_path: Path) -> None:
    search, comparison = search_in(between(tmp_path, steps(), steps("three")))
    assert names(search) == ["scale"]
    assert search.fixed and search.error < 1e-12
    assert [search.truths[node].op for node in search.guilty] == ["Mul"]
    assert comparison.origins == search.guilty


def test_two_faults_one_behind_the_other_are_both_found_in_order(tmp_path: Path) -> None:
    search, comparison = search_in(between(tmp_path, steps(), steps("three", "six")))
    assert names(search) == ["scale", "shift"]
    assert search.fixed and search.error < 1e-12
    scale = place_of(search.experiment, "scale")
    assert comparison.origins == [scale]
    wide = X.astype(np.float64)
    np.testing.assert_allclose(search.replacements["m"], np.tanh(wide) * 2, rtol=1e-12)


def test_a_right_file_has_no_fault(tmp_path: Path) -> None:
    search, comparison = search_in(between(tmp_path, steps(), steps()))
    assert search.guilty == [] and comparison.suspects == []
    assert search.replacements == {} and search.truths == {}


def test_the_values_that_the_file_holds_are_remembered_from_the_first_round(tmp_path: Path) -> None:
    experiment = between(tmp_path, steps(), steps("three", "six"))
    search, _ = search_in(experiment)
    held = {experiment.traced[place].op for place in search.matched}
    assert held == {"Tanh"}


def test_without_true_values_the_origin_is_named_and_nothing_is_fixed(tmp_path: Path) -> None:
    experiment = between(tmp_path, steps(), steps("three"))
    search, _ = search_in(replace(experiment, fetch=lambda place: None))
    assert names(search) == ["scale"]
    assert not search.fixed and search.truths == {}
    assert search.error == search.initial_error


def test_a_step_that_the_module_never_computes_gives_way_to_the_node_behind_it(
    tmp_path: Path,
) -> None:
    """Six times x, here as the sum of too few copies: the copies are none of the module's values."""
    right = [helper.make_node("Mul", ["x", "six"], ["y"], "scale")]
    wrong = [
        helper.make_node("Expand", ["x", "shape"], ["c"], "copies"),
        helper.make_node("ReduceSum", ["c", "axis"], ["y"], "sum", keepdims=0),
    ]
    search, comparison = search_in(between(tmp_path, right, wrong))
    assert comparison.origins == [0]
    assert names(search) == ["sum"]
    assert search.fixed


def test_an_origin_goes_with_the_layout_node_behind_it_that_is_confirmed(tmp_path: Path) -> None:
    """What the confirmed node only moves was computed wrongly before it: both are guilty."""
    right = [helper.make_node("Einsum", ["x", "w"], ["y"], "product", equation="ij,jk->ki")]
    wrong = [
        helper.make_node("MatMul", ["x", "other"], ["m"], "early"),
        helper.make_node("Transpose", ["m"], ["y"], "turn", perm=[1, 0]),
    ]
    search, _ = search_in(between(tmp_path, right, wrong))
    assert names(search) == ["early", "turn"]
    assert search.fixed


def test_exchanged_outputs_of_a_split_name_the_split(tmp_path: Path) -> None:
    """Both outputs are the module's values: no single true value fixes the difference of the two."""

    def parts(first: str, second: str) -> list[onnx.NodeProto]:
        return [
            helper.make_node("Tanh", ["x"], ["t"], "tanh"),
            helper.make_node("Split", ["t"], [first, second], "split", axis=1, num_outputs=2),
            helper.make_node("Mul", ["a", "two"], ["m"], "scale"),
            helper.make_node("Exp", ["b"], ["e"], "exp"),
            helper.make_node("Sub", ["m", "e"], ["y"], "difference"),
        ]

    search, _ = search_in(between(tmp_path, parts("a", "b"), parts("b", "a")))
    assert names(search) == ["split"]
    assert search.fixed


def test_a_sum_that_passes_the_smaller_operand_on_is_found_by_its_larger_true_value(
    tmp_path: Path,
) -> None:
    """The mask alone has one row: it is one of the module's values, and what follows is of another size than theirs."""

    def masked(total: onnx.NodeProto) -> list[onnx.NodeProto]:
        return [
            helper.make_node("Tanh", ["x"], ["t"], "tanh"),
            helper.make_node("ReduceMax", ["x", "axis"], ["r"], "row", keepdims=1),
            total,
            helper.make_node("Softmax", ["s"], ["p"], "softmax"),
            helper.make_node("Mul", ["p", "t"], ["y"], "weighted"),
        ]

    right = masked(helper.make_node("Add", ["t", "r"], ["s"], "sum"))
    wrong = masked(helper.make_node("Identity", ["r"], ["s"], "sum"))
    search, _ = search_in(between(tmp_path, right, wrong))
    assert names(search) == ["sum"]
    assert search.fixed
