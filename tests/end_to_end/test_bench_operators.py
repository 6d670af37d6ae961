"""The bench of torch's operators: a planted fault, a crash and a hang are rows of their own, and a run that was stopped goes on."""

import os
import signal
from pathlib import Path

import pytest
import torch
from torch.utils import _pytree as pytree

from bench.operators import run, samples, table, trial
from bench.operators.samples import Sample


def sample(operator: object, *tensors: torch.Tensor) -> Sample:
    leaves, structure = pytree.tree_flatten((tensors, {}))
    module = samples._module(operator, leaves, structure, len(tensors))
    return Sample(operator="planted", number=0, module=module, inputs=tensors, about="")


def test_a_fault_of_the_exporter_is_told_with_its_node(tmp_path: Path) -> None:
    row = trial.run(sample(torch.logaddexp, torch.zeros(3), torch.ones(3)), 3, tmp_path)
    assert row.verdict == "diverged" and row.node.startswith(("Exp ", "Log "))


def test_frozen_arguments_stay_where_they_were(tmp_path: Path) -> None:
    x = torch.rand(2, 5)
    leaves, structure = pytree.tree_flatten(((x, 0), {"keepdim": True}))
    module = samples._module(torch.sum, leaves, structure, 1)
    torch.testing.assert_close(module(x), x.sum(0, keepdim=True))
    one = Sample(operator="sum", number=0, module=module, inputs=(x,), about="")
    assert trial.run(one, 3, tmp_path).verdict == "faithful"


def test_what_torch_does_not_export_is_skipped_with_its_reason(tmp_path: Path) -> None:
    row = trial.run(sample(torch.linalg.eigvals, torch.eye(3)), 3, tmp_path)
    assert row.verdict == "skipped" and "eig" in row.why


def test_an_operator_that_ends_the_process_costs_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    monkeypatch.setattr(trial, "run", die)
    row = run._apart(sample(torch.sin, torch.ones(2)), 3)
    assert row.verdict == "crash" and row.why.startswith("SIGSEGV")


def test_rows_are_read_again_and_the_worst_of_an_operator_counts(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for number, verdict in enumerate(("faithful", "drift", "skipped")):
        run._add(trial.Row(operator="a", sample=number, verdict=verdict), path)
    run._add(trial.Row(operator="b", sample=-1, verdict="skipped", why="no | sample"), path)
    rows = run.read(path)
    assert [row.key for row in rows] == [("a", 0), ("a", 1), ("a", 2), ("b", -1)]
    assert "2 operators, 4 samples, 1 operators usable" in table.summary(rows)
    page = table.table(rows, seed=5, count=3)
    assert "| a |  | drift |" in page and "| b | no / sample |" in page
