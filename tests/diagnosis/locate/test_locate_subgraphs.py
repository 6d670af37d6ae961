"""Inside a branch, a loop or a local function: the inner node that is wrong while its inputs are right."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from support.two_files import experiment_on, normal, place_of, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.locate.experiment import Experiment
from onnxproof.diagnosis.locate.runtime_probe import RuntimeProbe
from onnxproof.diagnosis.locate.subgraphs import InnerNode, SubgraphSearch
from onnxproof.runtimes.evaluator.evaluator import inner_evaluators

X = normal(4, 6)


def port(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, X.shape)


def number(name: str, value: float) -> onnx.TensorProto:
    return numpy_helper.from_array(np.float32(value).reshape(()), name)


def search(experiment: Experiment, node: str) -> tuple[InnerNode | None, dict[str, str]]:
    subgraphs = SubgraphSearch(experiment, experiment.error())
    return subgraphs.find(place_of(experiment, node)), subgraphs.skipped


def branches(factor: float, *, taken: bool = True) -> onnx.ModelProto:
    then = helper.make_graph(
        [
            helper.make_node("Sin", ["t"], ["s"], "sine"),
            helper.make_node("Mul", ["s", "factor"], ["p"], "scale"),
        ],
        "then",
        [],
        [port("p")],
        [number("factor", factor)],
    )
    other = helper.make_graph(
        [helper.make_node("Cos", ["t"], ["c"], "cosine")], "else", [], [port("c")]
    )
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("If", ["yes"], ["chosen"], "choice", then_branch=then, else_branch=other),
        helper.make_node("Add", ["chosen", "x"], ["y"], "add"),
    ]
    return graph_model(nodes, {"x": X}, {"yes": np.array(taken)})


def test_the_guilty_node_of_a_branch_is_confirmed_by_its_true_value(tmp_path: Path) -> None:
    experiment = experiment_on(scene_between(tmp_path, branches(2), branches(3), {"x": X}))
    inner, skipped = search(experiment, "choice")
    assert inner is not None and inner.traced is not None
    assert inner.path == "choice/then_branch/scale"
    assert (inner.node.op_type, inner.traced.op, inner.confirmed) == ("Mul", "Mul", True)
    assert 0.1 < inner.gap < 1
    assert "choice" not in skipped


def test_without_true_values_the_inner_node_is_only_suspected(tmp_path: Path) -> None:
    experiment = experiment_on(scene_between(tmp_path, branches(2), branches(3), {"x": X}))
    blind = replace(experiment, fetch=lambda place: None)
    inner, _ = search(blind, "choice")
    assert inner is not None
    assert (inner.path, inner.confirmed) == ("choice/then_branch/scale", False)


def test_a_branch_that_is_not_taken_is_skipped_with_the_reason(tmp_path: Path) -> None:
    right, wrong = branches(2, taken=False), branches(3, taken=False)
    experiment = experiment_on(scene_between(tmp_path, right, wrong, {"x": X}))
    inner, skipped = search(experiment, "choice")
    assert inner is None
    assert skipped["choice/then_branch"] == "not run in this case"
    assert "choice/else_branch" not in skipped
    assert skipped["choice"].startswith("wrong as a whole")


def test_a_node_without_an_inside_is_passed_over(tmp_path: Path) -> None:
    experiment = experiment_on(scene_between(tmp_path, branches(2), branches(3), {"x": X}))
    assert search(experiment, "tanh") == (None, {})


def test_a_runtime_does_not_show_what_is_inside(tmp_path: Path) -> None:
    scene = scene_between(tmp_path, branches(2), branches(3), {"x": X})
    probed = replace(experiment_on(scene), session=RuntimeProbe(scene))
    inner, skipped = search(probed, "choice")
    assert inner is None
    assert skipped == {"choice": "a runtime does not show what is inside"}
    assert search(probed, "tanh") == (None, {})


def rounds(factor: float) -> onnx.ModelProto:
    """Three turns of v -> sin(v) * factor + x."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["still"], "going_on"),
            helper.make_node("Sin", ["old"], ["s"], "sine"),
            helper.make_node("Mul", ["s", "factor"], ["m"], "scale"),
            helper.make_node("Add", ["m", "x"], ["new"], "add_x"),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            port("old"),
        ],
        [helper.make_tensor_value_info("still", TensorProto.BOOL, []), port("new")],
        [number("factor", factor)],
    )
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("Loop", ["times", "yes", "t"], ["looped"], "loop", body=body),
        helper.make_node("Neg", ["looped"], ["y"], "minus"),
    ]
    constants = {"times": np.array(3), "yes": np.array(True)}
    return graph_model(nodes, {"x": X}, constants)


def test_in_a_loop_the_first_turn_that_goes_wrong_has_the_guilty_node(tmp_path: Path) -> None:
    """One true value in the first turn does not fix the answers, but it fixes that turn."""
    experiment = experiment_on(scene_between(tmp_path, rounds(1.5), rounds(2.5), {"x": X}))
    inner, _ = search(experiment, "loop")
    assert inner is not None and inner.traced is not None
    assert (inner.path, inner.confirmed) == ("loop/body/scale", True)
    true = experiment.fetch(inner.traced.place)
    assert true is not None
    wide = X.astype(np.float64)
    np.testing.assert_allclose(true, np.sin(np.tanh(wide)) * 1.5, rtol=1e-12)


def test_the_observers_are_taken_away_again(tmp_path: Path) -> None:
    experiment = experiment_on(scene_between(tmp_path, branches(2), branches(3), {"x": X}))
    inner, _ = search(experiment, "choice")
    assert inner is not None
    node = experiment.session.node(place_of(experiment, "choice"))
    evaluators = [evaluator for _, evaluator in inner_evaluators(node)]
    assert len(evaluators) == 2
    assert all(evaluator.observer is None for evaluator in evaluators)


def nested(factor: float) -> onnx.ModelProto:
    inner = helper.make_graph(
        [helper.make_node("Mul", ["s", "factor"], ["p"], "scale")],
        "inner",
        [],
        [port("p")],
        [number("factor", factor)],
    )
    idle = helper.make_graph(
        [helper.make_node("Neg", ["s"], ["n"], "minus")], "idle", [], [port("n")]
    )
    outer = helper.make_graph(
        [
            helper.make_node("Sin", ["t"], ["s"], "sine"),
            helper.make_node("If", ["yes"], ["q"], "deep", then_branch=inner, else_branch=idle),
        ],
        "outer",
        [],
        [port("q")],
    )
    other = helper.make_graph(
        [helper.make_node("Cos", ["t"], ["c"], "cosine")], "else", [], [port("c")]
    )
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("If", ["yes"], ["chosen"], "choice", then_branch=outer, else_branch=other),
        helper.make_node("Add", ["chosen", "x"], ["y"], "add"),
    ]
    return graph_model(nodes, {"x": X}, {"yes": np.array(True)})


def test_a_branch_inside_a_branch_is_searched_too(tmp_path: Path) -> None:
    experiment = experiment_on(scene_between(tmp_path, nested(2), nested(3), {"x": X}))
    inner, _ = search(experiment, "choice")
    assert inner is not None
    assert inner.path == "choice/then_branch/deep/then_branch/scale"
    assert inner.confirmed


def calls(first: float, second: float) -> onnx.ModelProto:
    """A function that is called twice, each time with its own factor."""
    nodes = [
        helper.make_node("Wave", ["x", "first"], ["a"], "call_a", domain="own"),
        helper.make_node("Wave", ["a", "second"], ["y"], "call_b", domain="own"),
    ]
    constants = {
        "first": np.float32(first).reshape(()),
        "second": np.float32(second).reshape(()),
    }
    model = graph_model(nodes, {"x": X}, constants)
    body = [
        helper.make_node("Sin", ["v"], ["s"], "sine"),
        helper.make_node("Mul", ["s", "f"], ["w"], "scale"),
    ]
    imports = [helper.make_opsetid("", 18)]
    model.functions.append(helper.make_function("own", "Wave", ["v", "f"], ["w"], body, imports))
    model.opset_import.append(helper.make_opsetid("own", 1))
    return model


def test_of_a_function_that_is_called_twice_the_guilty_call_is_looked_at(tmp_path: Path) -> None:
    right, wrong = calls(1.5, 2.0), calls(1.5, 3.0)
    experiment = experiment_on(scene_between(tmp_path, right, wrong, {"x": X}))
    inner, _ = search(experiment, "call_b")
    assert inner is not None and inner.traced is not None
    assert inner.path.startswith("call_b/") and inner.path.endswith("/scale")
    true = experiment.fetch(inner.traced.place)
    assert true is not None
    wide = np.sin(X.astype(np.float64)) * 1.5
    np.testing.assert_allclose(true, np.sin(wide) * 2, rtol=1e-12)
    blameless, _ = search(experiment, "call_a")
    assert blameless is None
