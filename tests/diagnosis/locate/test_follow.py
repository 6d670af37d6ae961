"""From the values of the file to a location in words: which node, how it was confirmed, what was not compared."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import helper
from support.two_files import normal, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.locate.evaluation import evaluate_by_runtime, evaluate_in_float64
from onnxproof.diagnosis.locate.follow import follow, with_module_trace
from onnxproof.diagnosis.locate.reference_trace import ReferenceTrace
from onnxproof.diagnosis.locate.scene import Located, Scene
from onnxproof.results import Gap, Location, Stage, Status
from onnxproof.system.deadline import Deadline

X = normal(4, 6)
FIXES = "putting the true value in its place mends what follows"


def scaled(factor: float) -> list[onnx.NodeProto]:
    """The factor is a node's own constant, which is no node to compare."""
    return [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("Constant", [], ["factor"], "constant", value_float=float(factor)),
        helper.make_node("Mul", ["t", "factor"], ["m"], "scale"),
        helper.make_node("Sin", ["m"], ["y"], "sine"),
    ]


def scene(folder: Path, right: Sequence[onnx.NodeProto], wrong: Sequence[onnx.NodeProto]) -> Scene:
    models = [graph_model(nodes, {"x": X}) for nodes in (right, wrong)]
    return scene_between(folder, *models, {"x": X})


def located(scene: Scene) -> Located:
    evaluation = evaluate_in_float64(scene)
    assert evaluation is not None
    return follow(scene, evaluation)


def test_the_guilty_node_comes_first_with_what_follows_behind_it(tmp_path: Path) -> None:
    location = located(scene(tmp_path, scaled(2), scaled(3))).location
    assert location.stage is Stage.GRAPH
    assert location.nodes == ("scale", "sine")
    assert [suspect.why for suspect in location.suspects] == [FIXES, ""]
    assert location.compared == 3 and location.skipped == ()
    assert location.evidence == (
        "3 of 3 nodes compared in float64; scale is wrong while its inputs are right; "
        "with true values in place 100% of the error goes away"
    )


def test_the_ratio_of_a_suspect_is_its_gap_in_units_of_the_noise(tmp_path: Path) -> None:
    """2 t against 3 t: a third of the larger, up to what the projections of a sketch can tell."""
    coarse = replace(scene(tmp_path, scaled(2), scaled(3)), noise=1e-3)
    assert located(coarse).location.suspects[0].ratio == pytest.approx(1000 / 3, rel=0.5)


def test_a_scope_in_the_name_of_the_node_gives_the_module(tmp_path: Path) -> None:
    wrong = scaled(3)
    wrong[2].name = "/block/norm/Mul"
    location = located(scene(tmp_path, scaled(2), wrong)).location
    assert location.nodes[0] == "/block/norm/Mul"
    assert location.module == "block.norm"


def test_the_module_of_the_true_value_is_taken_where_the_file_says_nothing(tmp_path: Path) -> None:
    right = scaled(2)
    right[2].name = "/block/norm/Mul"
    assert located(scene(tmp_path, right, scaled(3))).location.module == "block.norm"


def test_after_the_deadline_the_origin_is_named_unconfirmed(tmp_path: Path) -> None:
    late = replace(scene(tmp_path, scaled(2), scaled(3)), deadline=Deadline.after(0.0))
    suspect = located(late).location.suspects[0]
    assert (suspect.node, suspect.why) == ("scale", "")


def test_where_every_value_is_right_the_producer_of_the_output_is_named(tmp_path: Path) -> None:
    """The last step of the reference is missing: what the file computes is one of its values."""
    location = located(scene(tmp_path, scaled(2), scaled(2)[:3])).location
    assert location.nodes == ("scale",)
    assert location.suspects[0].why == ""


def two_outputs(second: str) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("Neg", ["t"], ["n"], "minus"),
    ]
    model = graph_model(nodes, {"x": X})
    model.graph.output.append(
        helper.make_tensor_value_info(second, onnx.TensorProto.FLOAT, X.shape)
    )
    return model


def test_of_several_outputs_the_one_that_is_to_be_explained_gives_the_producer(
    tmp_path: Path,
) -> None:
    gap = Gap(case="case", group="ordinary", backend="ort", output="n", status=Status.COMPARED)
    both = scene_between(tmp_path, two_outputs("t"), two_outputs("t"), {"x": X})
    asked = replace(both, gap=gap)
    evaluation = evaluate_in_float64(asked)
    assert evaluation is not None
    assert follow(asked, evaluation).location.nodes == ("minus",)
    assert follow(both, evaluation).location.nodes == ("minus", "tanh")


def test_the_profile_has_every_node_that_was_compared(tmp_path: Path) -> None:
    found = located(scene(tmp_path, scaled(2), scaled(3)))
    assert found.profile is not None
    assert [gap.node for gap in found.profile.nodes] == ["tanh", "scale", "sine"]
    assert found.profile.against == "the file's values in float64 against the reference file's own"
    assert found.profile.nodes[0].ratio < 1 < found.profile.nodes[1].ratio


def test_a_graph_as_the_reference_leaves_no_trace_of_a_module(tmp_path: Path) -> None:
    found = located(scene(tmp_path, scaled(2), scaled(3)))
    assert found.counterparts == {} and found.traced_values == []
    assert found.module_session is None


def of_runtime(model: onnx.ModelProto) -> onnx.ModelProto:
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def with_sample_op(factor: float) -> onnx.ModelProto:
    """An operator of ONNX Runtime's tests that passes its input on; the evaluator lacks it."""
    nodes = [helper.make_node("SampleOp", ["x"], ["s"], "sample", domain="com.microsoft")]
    nodes += scaled(factor)
    nodes[1].input[0] = "s"
    return of_runtime(graph_model(nodes, {"x": X}))


def test_a_reference_that_the_evaluator_refuses_is_said_not_to_be_followed(tmp_path: Path) -> None:
    right, wrong = with_sample_op(2), graph_model(scaled(3), {"x": X})
    location = located(scene_between(tmp_path, right, wrong, {"x": X})).location
    assert location.stage is Stage.GRAPH and location.nodes == ()
    start = "the file differs from the reference, whose values could not be followed: "
    assert location.evidence.startswith(start)
    assert "SampleOp" in location.evidence


def test_where_the_evaluator_lacks_an_operator_the_values_of_the_runtime_are_followed(
    tmp_path: Path,
) -> None:
    right, wrong = graph_model(scaled(2), {"x": X}), with_sample_op(3)
    served = scene_between(tmp_path, right, wrong, {"x": X})
    assert evaluate_in_float64(served) is None
    evaluation = evaluate_by_runtime(served)
    assert evaluation is not None
    location = follow(served, evaluation).location
    assert location.nodes[0] == "scale" and location.suspects[0].why == FIXES
    assert "4 of 4 nodes compared as the runtime computes them" in location.evidence


def test_what_a_module_computed_is_handed_on() -> None:
    plain = Located(location=Location(stage=Stage.EXPORT))
    session = object()
    trace = ReferenceTrace(values=[], fetch=lambda place: X, module_session=session)
    handed = with_module_trace(plain, trace)
    assert handed.module_session is session and handed.fetch(0) is X
    assert with_module_trace(plain, replace(trace, module_session=None)) is plain


def test_the_number_of_suspects_is_limited(tmp_path: Path) -> None:
    def long(factor: float) -> list[onnx.NodeProto]:
        nodes = scaled(factor)
        names = ["y", *(f"v{k}" for k in range(20))]
        tail = [helper.make_node("Sin", [names[k]], [names[k + 1]], f"sine{k}") for k in range(20)]
        return nodes + tail

    location = located(scene(tmp_path, long(2), long(3))).location
    assert len(location.nodes) == 12
    assert location.nodes[:3] == ("scale", "sine", "sine0")
