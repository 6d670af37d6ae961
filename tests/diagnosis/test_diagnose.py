"""From evidence to a diagnosis: which case is taken, what it counts, and what is said where there is none."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from support import made_proofs
from support.fake_reference import FakeReference
from support.made_evidence import evidence_on, gap_of
from support.two_files import normal, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.counterfactuals.workbench import Means
from onnxproof.diagnosis.diagnose import (
    Diagnosis,
    _steadiest_scene,
    diagnose,
    noise_profile,
    open_scene,
    open_workbench,
)
from onnxproof.diagnosis.locate import Located, Scene
from onnxproof.options import Policy
from onnxproof.results import (
    Case,
    Domain,
    Finding,
    Location,
    OutputInfo,
    Stage,
    Status,
    Verdict,
)

Array = np.ndarray[Any, Any]
X = normal(4, 6)


def model(factor: float) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("Mul", ["t", "factor"], ["m"], "scale"),
        helper.make_node("Sin", ["m"], ["y"], "sine"),
    ]
    return graph_model(nodes, {"x": X}, {"factor": np.float32(factor).reshape(())})


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return scene_between(tmp_path, model(2), model(3), {"x": X})


def never(*_: Any) -> Verdict | None:
    """No fix is verified here."""
    return None


def test_the_fault_is_located_on_the_witness(scene: Scene) -> None:
    evidence = evidence_on(scene, [gap_of("case")])
    diagnosis = diagnose(evidence, Policy(), never)
    assert diagnosis.location is not None
    assert (diagnosis.location.stage, diagnosis.location.nodes[0]) == (Stage.GRAPH, "scale")
    assert diagnosis.scene is not None and diagnosis.scene.case is scene.case
    assert diagnosis.profile is not None
    assert [gap.node for gap in diagnosis.profile.nodes] == ["tanh", "scale", "sine"]


def test_without_a_case_only_a_refused_fallback_is_a_cause(scene: Scene) -> None:
    refused = Finding(code="provider-fallback", what="ort:cuda: all nodes on the CPU", counts=True)
    evidence = evidence_on(scene, witness=None, findings=(refused,))
    diagnosis = diagnose(evidence, Policy(), never)
    assert [(cause.code, cause.proven) for cause in diagnosis.causes] == [
        ("provider-fallback", True)
    ]
    assert diagnosis.location is None
    accepted = evidence_on(scene, witness=None, findings=(replace(refused, counts=False),))
    assert diagnose(accepted, Policy(), never) == Diagnosis()


def test_a_note_is_diagnosed_where_there_is_no_witness(scene: Scene) -> None:
    evidence = evidence_on(scene, [gap_of("case", domain=Domain.TIES)], witness=None)
    noted = replace(evidence, noted=scene.case)
    diagnosis = diagnose(noted, Policy(), never)
    assert diagnosis.location is not None
    assert diagnosis.location.evidence == "with ties broken by one rule the two agree"


def test_a_file_that_hangs_is_asked_nothing_more(scene: Scene) -> None:
    diagnosis = diagnose(evidence_on(scene, [gap_of("case")], hung=True), Policy(), never)
    assert diagnosis == Diagnosis(
        findings=(
            Finding(
                code="unexplained",
                what="the file gave no answer within the time limit, and nothing more was asked of it",
                help="the verdict stands",
            ),
        )
    )


def test_a_budget_that_is_over_is_said_to_be(scene: Scene) -> None:
    evidence = evidence_on(scene, [gap_of("case")], budget_s=2.5, seconds=-1.0)
    [finding] = diagnose(evidence, Policy(), never).findings
    assert finding.code == "unexplained"
    assert finding.what == (
        "the budget of 2.5 s ended before the node and the cause were looked for"
    )
    assert finding.help == "give more time with `--budget`"


def test_the_worst_gap_of_the_case_is_explained(scene: Scene) -> None:
    gaps = [
        gap_of("case", ratio=50.0, backend="ort:basic"),
        gap_of("case", ratio=1e5, backend="ort:disabled"),
        gap_of("case", ratio=1e9, domain=Domain.TIES),
        gap_of("another", ratio=1e9),
    ]
    diagnosed = diagnose(evidence_on(scene, gaps), Policy(), never).scene
    assert diagnosed is not None
    assert diagnosed.backend == "ort:disabled" and diagnosed.gap is gaps[1]


def test_a_diagnosis_adds_its_findings_to_those_of_the_proof() -> None:
    proof = made_proofs.full()
    location = Location(stage=Stage.RUNTIME)
    finding = Finding(code="unexplained", what="no time", help="")
    diagnosis = Diagnosis(
        location=location, ruled_out=("a: b",), untried=("c: d",), findings=(finding,)
    )
    added = diagnosis.added_to(proof)
    assert added.findings == (*proof.findings, finding)
    assert (added.location, added.tried, added.untried) == (location, ("a: b",), ("c: d",))
    assert added.causes == () and added.verdict is proof.verdict


def with_oracle(scene: Scene, oracle: FakeReference, **changes: Any) -> Any:
    outputs = tuple(
        OutputInfo(name=name, dtype="float32", shape=(), onnx_name=name) for name in "abc"
    )
    evidence = evidence_on(scene, **changes)
    signature = replace(scene.signature, outputs=outputs)
    return replace(evidence, reference=oracle, signature=signature)


def case(name: str, *numbers: float) -> Case:
    return Case(name=name, group="ordinary", about="", inputs={"x": np.array(numbers, np.float32)})


CLOSE = case("close", 1.0, 1e-9, 2.0)


def test_a_choice_that_rounding_decides_does_not_count_unless_it_is_to_be_explained(
    scene: Scene,
) -> None:
    evidence = with_oracle(scene, FakeReference(reversed_choice))
    opened = open_scene(evidence, CLOSE, "ort")
    assert opened.steady == (True, False, True)
    asked = open_scene(evidence, CLOSE, "ort", gap_of("close", output="b"))
    assert asked.steady == (True, True, True)


def reversed_choice(inputs: Mapping[str, Array]) -> list[Array]:
    """argmax of (x0, x0 + x1): float32 does not see x1."""
    x = next(iter(inputs.values()))
    return [x * x, np.argmax([x[0], x[0] + x[1]])[None], np.argmin(x)[None]]


def test_the_noise_of_a_scene_has_a_floor_and_leaves_out_what_does_not_count(
    scene: Scene,
) -> None:
    evidence = with_oracle(scene, FakeReference(reversed_choice))
    assert open_scene(evidence, case("exact", 1.0, 2.0, 4.0), "ort").noise == 1e-7
    assert open_scene(evidence, CLOSE, "ort").noise == 1e-7
    asked = open_scene(evidence, CLOSE, "ort", gap_of("close", output="b"))
    assert asked.noise == 1.0


def test_without_a_truth_the_answers_are_the_truth(scene: Scene) -> None:
    evidence = with_oracle(scene, FakeReference(reversed_choice, has_truth=False))
    opened = open_scene(evidence, CLOSE, "ort")
    assert opened.truth[0].dtype == np.float32
    assert opened.steady == (True, True, True)
    assert opened.dtypes == [np.float32, np.int64, np.int64]


def rounded_by_first(inputs: Mapping[str, Array]) -> list[Array]:
    """In float32 the first number is how far the answer is off; in float64 nothing is."""
    x = next(iter(inputs.values()))
    off = x[0] if x.dtype == np.float32 else 0.0
    return [x[1:] + off, np.array([0]), np.array([0])]


def steadiest(scene: Scene, witness: Case, *others: Case) -> str:
    gaps = [gap_of(one.name, output="a") for one in (witness, *others)]
    oracle = FakeReference(rounded_by_first)
    evidence = with_oracle(scene, oracle, gaps=gaps, witness=witness)
    chosen = _steadiest_scene(replace(evidence, differing=others), Policy(), witness)
    return chosen.case.name


def test_a_steadier_case_is_taken_where_rounding_decides_the_witness(scene: Scene) -> None:
    witness, restless, steady = (
        case(name, off, 3.0, 4.0)
        for name, off in (("witness", 0.5), ("restless", 0.25), ("steady", 0.0))
    )
    assert steadiest(scene, witness, restless, steady) == "steady"
    assert steadiest(scene, witness, restless) == "restless"
    assert steadiest(scene, restless, witness) == "restless"


def test_a_steady_witness_is_kept(scene: Scene) -> None:
    witness = case("witness", 1e-4, 3.0, 4.0)
    assert steadiest(scene, witness, case("steadier", 0.0, 3.0, 4.0)) == "witness"


def test_the_workbench_knows_which_cases_differ_and_which_are_ordinary(scene: Scene) -> None:
    other = case("other", 1.0)
    gaps = [
        gap_of("good", ratio=1.0),
        gap_of("bad", ratio=1.0),
        gap_of("bad", ratio=1e6, output="z"),
        gap_of("refused", status=Status.REFUSED, group="shapes"),
        gap_of("scale-100", ratio=1.0),
        gap_of("edge", ratio=1.0, group="values"),
        gap_of("noted", domain=Domain.INF),
    ]
    evidence = replace(evidence_on(scene, gaps), differing=(scene.case, other))
    workbench = open_workbench(
        evidence, Policy(), scene, Located(location=Location(stage=Stage.EXPORT)), means=Means()
    )
    assert workbench.cases.beyond_noise == {
        "good": False,
        "bad": True,
        "refused": True,
        "scale-100": False,
        "edge": False,
    }
    assert workbench.cases.ordinary == {
        "good": True,
        "bad": True,
        "refused": True,
        "scale-100": False,
        "edge": False,
    }
    assert list(workbench.cases.others) == [other]
    assert workbench.deadline == evidence.budget.end


def test_the_noise_along_the_graph_is_measured_on_the_example(tmp_path: Path) -> None:
    healthy = scene_between(tmp_path, model(2), model(2), {"x": X})
    measured, findings = noise_profile(evidence_on(healthy))
    assert findings == () and measured is not None
    assert measured.case == "example"
    assert [gap.node for gap in measured.nodes] == ["tanh", "scale", "sine"]


def test_without_time_the_noise_along_the_graph_is_said_to_be_missing(scene: Scene) -> None:
    measured, [finding] = noise_profile(evidence_on(scene, seconds=-1.0))
    assert measured is None
    assert finding.code == "budget-ended"
    assert finding.what == "the noise along the graph was not measured: no time was left for it"
