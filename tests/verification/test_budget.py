"""The budget is for all stages together: counted in forward passes, so that a busy machine can only make fewer of them."""

import time
from pathlib import Path

import pytest
import torch

import onnxproof
from bench.budget import Slow, kept, write
from onnxproof.options import Policy
from onnxproof.results import Verdict, judging
from onnxproof.results.proof import Proof
from onnxproof.runtimes.session.execution import Clock
from onnxproof.system.deadline import Deadline
from onnxproof.verification.budget import Budget, not_reached

PASS_S = 0.15


class Counted(Slow):
    """Counts its forward passes, those in float64 and with other roundings too."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Counted.calls += 1
        return super().forward(x)


def proven(
    folder: Path, budget_s: float, *, wrong: bool, explain: bool = True, pass_s: float = PASS_S
) -> tuple[Proof, int]:
    Counted.calls = 0
    module = Counted(pass_s).eval()
    path = write(module, folder / "slow.onnx", wrong=wrong)
    proof = onnxproof.verify(
        module,
        path,
        (torch.randn(2, 8),),
        dynamic_shapes=({0: "batch"},),
        budget_s=budget_s,
        explain=explain,
    )
    return proof, Counted.calls


def test_a_deadline_tells_what_is_left() -> None:
    assert Deadline.after(100).left > 99
    assert Deadline.after(100).allows(50)
    assert not Deadline.after(100).allows(150)
    assert Deadline.after(-1).passed
    assert Deadline.after(-1).left == 0
    assert Deadline.never().within(5).left <= 5
    assert Deadline.after(1).within(50).left <= 1


def test_the_shares_of_the_stages() -> None:
    clock = Clock()
    explained, plain = Budget(100.0, clock, explained=True), Budget(100.0, clock, explained=False)
    start = clock.started
    assert [explained.cases(faulty=f).until - start for f in (False, True)] == pytest.approx(
        [80.0, 50.0]
    )
    assert plain.cases(faulty=True).until - start == pytest.approx(100.0)
    explained.extend(7.0)
    assert explained.end.until - start == pytest.approx(107.0)


def test_what_is_afforded_follows_from_the_passes_so_far() -> None:
    clock = Clock()
    budget = Budget(10.0, clock, explained=True)
    assert budget.affords(1000)  # nothing is known yet
    clock.seconds["torch"], clock.passes["torch"] = 4.0, 2
    assert budget.pass_s == 2.0
    assert budget.affords(5)
    assert not budget.affords(6)
    assert budget.affords_reruns(5)
    clock.seconds["torch-rerun"], clock.passes["torch-rerun"] = 5.0, 1
    assert budget.affords_reruns(2)
    assert not budget.affords_reruns(3)
    assert not budget.affords_reruns(2, 6.0)
    assert budget.affords_case(1)
    assert not budget.affords_case(2)


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("budget_s", [1.0, 4.0])
def test_no_more_passes_are_begun_than_the_budget_holds(
    budget_s: float, wrong: bool, tmp_path: Path
) -> None:
    proof, calls = proven(tmp_path, budget_s, wrong=wrong)
    assert 3 <= calls <= 1.2 * budget_s / PASS_S + 1
    assert proof.verdict is not Verdict.DIVERGED or wrong
    assert proof.verdict is not Verdict.FAITHFUL or not wrong


def test_a_difference_that_can_not_be_confirmed_is_neither_an_alarm_nor_a_pass(
    tmp_path: Path,
) -> None:
    proof, _ = proven(tmp_path, 1.0, wrong=True)
    said = next(finding for finding in proof.findings if finding.code == "not-confirmed")
    assert proof.verdict is Verdict.VACUOUS
    assert (
        said.what
        == "`example` differs beyond noise, and the budget of 1 s left no time to confirm it: not enough was compared"
    )
    assert "--budget" in said.help
    assert proof.sentence() == said.what
    assert proof.judged(Policy(noise_limit=10.0)).verdict is Verdict.VACUOUS
    assert not proof.passed


def test_enough_time_confirms_it_and_names_the_cause(tmp_path: Path) -> None:
    proof, _ = proven(tmp_path, 60.0, wrong=True, pass_s=0.001)
    assert proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED)
    assert proof.causes[0].code == "attribute"
    assert not {"not-confirmed", "budget-ended", "unexplained"} & {
        finding.code for finding in proof.findings
    }


def test_what_was_not_reached_is_said(tmp_path: Path) -> None:
    proof, _ = proven(tmp_path, 0.5, wrong=False, pass_s=0.2)
    said = [finding.what for finding in proof.findings if finding.code == "budget-ended"]
    assert any("the runtimes themselves were not examined" in what for what in said)
    assert not proof.complete


def test_a_healthy_quick_model_has_nothing_that_was_not_reached(tmp_path: Path) -> None:
    proof, _ = proven(tmp_path, 60.0, wrong=False, pass_s=0.0)
    assert proof.verdict is Verdict.FAITHFUL
    assert "budget-ended" not in {finding.code for finding in proof.findings}


def test_only_an_unconfirmed_case_takes_the_pass_away() -> None:
    assert judging.judge([], Policy(), findings=[not_reached("something")]) is Verdict.VACUOUS
    clock = Clock()
    finding = Budget(5.0, clock, explained=True).not_confirmed("example", 10)
    assert finding.code == judging.NOT_CONFIRMED


def test_the_bench_knows_what_is_kept() -> None:
    assert kept(2.4, 2.0, 0.1)
    assert not kept(2.5, 2.0, 0.1)
    assert kept(4.0, 2.0, 2.0)
    assert not kept(4.1, 2.0, 2.0)


def test_a_file_of_a_slow_module_may_be_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time limit below the reference's own pass does not make a fault of the file's."""
    from onnxproof.options import Serving
    from onnxproof.runtimes import ort

    slow = ort.OrtSession._answer
    monkeypatch.setattr(
        ort.OrtSession, "_answer", lambda self, *args: (time.sleep(0.6), slow(self, *args))[1]
    )
    module = Slow(0.5).eval()
    path = write(module, tmp_path / "slow.onnx", wrong=False)
    proof = onnxproof.verify(
        module, path, (torch.randn(2, 8),), budget_s=3, serving=Serving(time_s=0.4)
    )
    assert proof.verdict is Verdict.FAITHFUL
