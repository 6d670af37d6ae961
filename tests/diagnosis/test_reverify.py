"""The verdict on a fix: from scratch, within what is left of the budget."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.made_evidence import evidence_on, gap_of
from support.two_files import normal, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.locate import Scene
from onnxproof.diagnosis.reverify import within_budget_of
from onnxproof.results import Case, Verdict
from onnxproof.verification.case_runner import Outcome, Trial
from onnxproof.verification.evidence import Evidence

X = normal(4, 6)


def model(factor: float) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("Mul", ["t", "factor"], ["y"], "scale"),
    ]
    return graph_model(nodes, {"x": X}, {"factor": np.float32(factor).reshape(())})


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return scene_between(tmp_path, model(2), model(3), {"x": X})


def evidence(scene: Scene, seconds: float | None = None) -> Evidence:
    return evidence_on(scene, [gap_of("case")], seconds=seconds)


def test_a_mended_file_is_faithful_and_one_that_is_still_wrong_diverges(scene: Scene) -> None:
    reverify = within_budget_of(evidence(scene))
    assert reverify(model(2), ()) is Verdict.FAITHFUL
    assert reverify(model(2.5), ()) is Verdict.DIVERGED


def test_a_mended_file_that_no_runtime_opens_is_an_error(scene: Scene) -> None:
    broken = model(2)
    broken.graph.node[1].op_type = "NoSuchOperator"
    assert within_budget_of(evidence(scene))(broken, ()) is Verdict.ERROR


def test_without_a_change_there_is_nothing_to_verify(scene: Scene) -> None:
    assert within_budget_of(evidence(scene))(None, ()) is None


def test_with_optimizers_off_the_same_file_is_verified(scene: Scene) -> None:
    """The file is wrong whatever is optimised."""
    assert within_budget_of(evidence(scene))(None, ("ConstantFolding",)) is Verdict.DIVERGED


def test_the_cases_that_were_asked_for_by_name_do_not_limit_the_verdict(scene: Scene) -> None:
    """With only a case that does not exist nothing would be compared."""
    chosen = evidence(scene)
    narrowed = replace(chosen, request=replace(chosen.request, only=("no-such-case",)))
    assert within_budget_of(narrowed)(model(2), ()) is Verdict.FAITHFUL


def test_after_the_budget_there_is_no_verdict(scene: Scene) -> None:
    assert within_budget_of(evidence(scene, seconds=-1.0))(model(2), ()) is None


def test_where_too_few_passes_are_left_there_is_no_verdict(scene: Scene) -> None:
    """A pass that took an hour leaves no time for eight more."""
    slow = evidence(scene)
    slow.clock.passes["ort-reference"] = 1
    slow.clock.seconds["ort-reference"] = 3600.0
    assert within_budget_of(slow)(model(2), ()) is None


def test_the_observer_of_the_first_verification_is_not_told(scene: Scene) -> None:
    told: list[object] = []
    watched = evidence(scene)
    watched = replace(watched, request=replace(watched.request, progress=told.append))
    assert within_budget_of(watched)(model(2), ()) is Verdict.FAITHFUL
    assert told == []


def test_the_cases_that_differ_come_first_and_one_that_still_does_ends_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    inner = Trial.run

    def run(self: Trial, case: Case) -> Outcome:
        names.append(case.name)
        return inner(self, case)

    monkeypatch.setattr(Trial, "run", run)
    other = replace(scene.case, name="another", inputs={"x": X + 1})
    reverify = within_budget_of(replace(evidence(scene), differing=(other,)))
    assert reverify(model(2.5), ()) is Verdict.DIVERGED
    assert names == ["case"]
    assert reverify(model(2), ()) is Verdict.FAITHFUL
    assert names[1:3] == ["case", "another"] and names.count("example") == 1
