"""The workbench: when an error is gone, what other cases confirm, and what is not tried any more."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.module_workbenches import file_of, module_workbench, node, without_line
from support.workbenches import without_tally, workbench

from onnxproof.diagnosis.counterfactuals.changed_reference import Variant, skip_call
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.diagnosis.judge import Judgement, Standing
from onnxproof.reference.traced_value import TracedValue
from onnxproof.results import Fix
from onnxproof.system.deadline import Deadline

NARROW = {"x": np.array([[-1.0, 0.5, 1.5]], np.float32)}
UNBOUNDED = 1e6
WIDE = {"x": np.array([[-4.0, 3.0, 9.0]], np.float32)}


class Bounded(torch.nn.Module):
    """Bounded at one; the file is bounded at two, or nowhere near."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clamp(x, max=1.0) * 3


def left_out(entry: TracedValue) -> Iterator[Variant]:
    if entry.op == "clamp":
        yield Variant(what="left out", change=skip_call(), code="clipping")


def bounded_bench(folder: Path, bound: float = 2, **options: Any) -> Workbench:
    nodes = [node("Min", "x", "bound", output="clip"), node("Mul", "clip", "three")]
    constants = {"bound": np.array(bound, np.float32), "three": np.array(3, np.float32)}
    file = file_of(nodes, NARROW, constants)
    return module_workbench(folder, Bounded(), file, NARROW, located={"clip": "clamp"}, **options)


def test_a_fault_in_the_module_that_gives_the_candidates_answers_is_proven(tmp_path: Path) -> None:
    tried = bounded_bench(tmp_path, UNBOUNDED).try_in_reference(left_out)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference, tried.code) == (True, True, "clipping")
    assert without_line(tried.evidence) == (
        "the module with `clamp` left out gives what the candidate gives"
    )
    assert tried.error_left is not None
    assert tried.error_left < 1e-6


def test_other_cases_that_differ_tell_against_it(tmp_path: Path) -> None:
    wide = [{"x": WIDE["x"] * factor} for factor in (1, 2, 3)]
    tried = bounded_bench(tmp_path, others=wide).try_in_reference(left_out)
    assert tried == "no such change of the module gives what the candidate gives"


def test_one_other_case_that_it_does_not_explain_keeps_it_from_being_proven(
    tmp_path: Path,
) -> None:
    explained = [{"x": np.array([[1.75, 1.5, low]], np.float32)} for low in (-1, 0, 1)]
    bench = bounded_bench(tmp_path, others=[*explained, WIDE])
    tried = bench.try_in_reference(left_out)
    assert isinstance(tried, Tried)
    assert not tried.proven
    assert tried.judgement is not None
    assert (tried.judgement.explained, tried.judgement.failing) == (4, 5)


def test_a_remedy_that_is_only_likely_is_the_fix_beside_a_fault_in_the_module(
    tmp_path: Path,
) -> None:
    judgement = Judgement(standing=Standing.LIKELY, before=1.0, after=1e-9)
    mended = Tried(judgement=judgement, evidence="mended", fix=Fix(kind="graph", what="do it"))
    bench = bounded_bench(tmp_path, UNBOUNDED)
    tried = bench.try_in_reference(left_out, remedy=lambda: mended)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference) == (True, True)
    assert without_tally(tried.evidence).endswith("left out gives what the candidate gives")
    assert tried.fix == mended.fix
    alone = bench.try_in_reference(lambda entry: (), remedy=lambda: mended)
    assert alone is mended


def test_a_remedy_that_is_proven_stands_before_a_fault_that_is_only_likely(tmp_path: Path) -> None:
    judgement = Judgement(standing=Standing.PROVEN, before=1.0, after=1e-9)
    mended = Tried(judgement=judgement, evidence="mended")
    explained = [{"x": np.array([[1.75, 1.5, low]], np.float32)} for low in (-1, 0, 1)]
    bench = bounded_bench(tmp_path, others=[*explained, WIDE])
    assert bench.try_in_reference(left_out, remedy=lambda: mended) is mended
    likely = replace(mended, judgement=replace(judgement, standing=Standing.LIKELY))
    tried = bench.try_in_reference(left_out, remedy=lambda: likely)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference) == (False, True)


def test_without_the_module_nothing_is_put_into_it(tmp_path: Path) -> None:
    bench = bounded_bench(tmp_path)
    bench.located = replace(bench.located, module_session=None)
    assert isinstance(bench.try_in_reference(left_out), str)


def test_after_the_deadline_nothing_is_tried(tmp_path: Path) -> None:
    bench = bounded_bench(tmp_path, deadline=Deadline.after(0.0))
    assert bench.late
    assert bench.before < 1  # what the candidate itself answers is known
    assert isinstance(bench.try_in_reference(left_out), str)
    right = bench.with_constant(bench.nodes[0], 1, np.array(1, np.float32))
    assert bench.distance(right) == float("inf")
    assert bench.try_model(right, evidence="", fix="") is None


def plain_bench(folder: Path, **scene: Any) -> Workbench:
    """The file doubles where the truth is x: a relative error of one."""
    x = NARROW["x"]
    file = file_of([node("Add", "x", "x")], NARROW)
    bench = workbench(folder, file, x, NARROW, nodes=["y"])
    bench = Workbench(
        replace(bench.scene, **scene), bench.located, cases=bench.cases, policy=bench.policy
    )
    return bench


@pytest.mark.parametrize(
    ("noise", "limit"), [(1e-9, 2e-6), (1e-7, 2e-6), (1e-6, 2e-5), (0.05, 1.0)]
)
def test_an_error_is_gone_within_twenty_times_the_noise_or_seven_digits(
    noise: float, limit: float, tmp_path: Path
) -> None:
    bench = plain_bench(tmp_path, noise=noise)
    assert bench.before == pytest.approx(1.0)
    assert bench.limit == pytest.approx(limit)
    largest = min(limit, 1 / 5)  # and five times smaller than before
    assert bench.cured(largest * 0.999)
    assert not bench.cured(largest * 1.001)
    assert not bench.cured(float("nan"))


def test_errors_are_counted_in_noise_where_there_are_some(tmp_path: Path) -> None:
    bench = plain_bench(tmp_path, noise=1e-3)
    assert bench.noise_ratio(0.5) == pytest.approx(500.0)
    assert bench.noise_ratio(None) is None


def test_a_graph_that_the_runtime_refuses_is_infinitely_wrong(tmp_path: Path) -> None:
    bench = plain_bench(tmp_path)

    def change(changed: Any) -> None:
        changed.op_type = "NoSuchOperator"

    broken = bench.with_node(bench.nodes[0], change)
    assert bench.run(broken) is None
    assert bench.distance(broken) == float("inf")
    assert bench.value("nowhere") is None
    assert bench.values(["y", "nowhere"]) == {}


@pytest.mark.parametrize(
    ("backend", "option"), [("ort", ""), ("ort:disabled", "disabled"), ("reference", "")]
)
def test_trials_run_with_the_option_of_the_runtime_that_showed_the_fault(
    backend: str, option: str, tmp_path: Path
) -> None:
    assert plain_bench(tmp_path, backend=backend).ort_option == option


def test_without_a_truth_the_reference_answers_in_its_own_precision(tmp_path: Path) -> None:
    half: Any = SimpleNamespace(truth=lambda inputs: None, run=lambda inputs: [inputs["x"] / 2])
    answers = plain_bench(tmp_path, reference=half).truth_of(WIDE)
    assert [answer.tolist() for answer in answers] == [[[-2.0, 1.5, 4.5]]]


def test_a_constant_is_changed_for_one_reader_alone(tmp_path: Path) -> None:
    nodes = [node("Mul", "x", "c", output="first"), node("Add", "first", "c")]
    file = file_of(nodes, NARROW, {"c": np.array(2, np.float32)})
    bench = workbench(tmp_path, file, NARROW["x"] * 5 + 2, NARROW, nodes=["first"])
    outputs = bench.run(bench.with_constant(bench.nodes[0], 1, np.array(5, np.float32)))
    assert outputs is not None
    assert outputs[0] is not None
    assert outputs[0].tolist() == (NARROW["x"] * 5 + 2).tolist()
    assert bench.before > 0.1
