"""The bench of fresh mutants: drawn from a seed, judged without onnxproof, verified in a process of their own."""

import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest

from bench.mutants import cache, judge, rows
from bench.mutants.draw import Workshop
from bench.mutants.graph import Graph
from bench.mutants.mutation import KINDS, TWINS, load_kinds
from bench.mutants.subjects import sources

SUBJECTS = ("tabular_embeddings", "conv_mobile_relu6")


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Two small subjects, exported for this test."""
    load_kinds()
    folder: Path = tmp_path_factory.mktemp("mutants")
    chosen = [cache.prepare(sources()[name], folder, 20) for name in SUBJECTS]
    return Workshop.of(folder, chosen)


def test_the_subjects_are_faithful(workshop: Workshop) -> None:
    assert sorted(workshop.health) == sorted(SUBJECTS)
    assert all(max(health.noise) < 1e-5 for health in workshop.health.values())


def test_there_are_forty_kinds_and_twelve_twins() -> None:
    load_kinds()
    assert len(KINDS) >= 40
    assert len(TWINS) >= 12


def test_a_seed_gives_the_same_mutant_again(workshop: Workshop) -> None:
    first, again, other = (workshop.draw(seed, 0) for seed in (3, 3, 4))
    assert first is not None and again is not None and other is not None
    assert first.model.SerializeToString() == again.model.SerializeToString()
    assert first.mutation == again.mutation
    assert first.model.SerializeToString() != other.model.SerializeToString()


def test_guilty_nodes_are_nodes_of_the_written_file(workshop: Workshop) -> None:
    for index in range(8):
        mutant = workshop.draw(5, index)
        assert mutant is not None
        names = {node.name for node in mutant.model.graph.node}
        assert mutant.mutation.guilty
        assert set(mutant.mutation.guilty) <= names
        assert mutant.mutation.codes


def test_the_judge_knows_a_fault_from_a_rewrite(workshop: Workshop) -> None:
    subject = "conv_mobile_relu6"
    fault = workshop.change(subject, KINDS["channel-sign"], Random(1))
    healthy = workshop.change(subject, TWINS["operands-of-add"], Random(1))
    assert fault is not None and healthy is not None
    assert fault.movement > judge.FAULT
    assert healthy.movement <= judge.HEALTHY


def test_a_kind_that_moves_nothing_gives_no_fault(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "moves-nothing", TWINS["identity-inserted"])
    assert workshop.draw(1, 0, only_kind="moves-nothing") is None
    assert workshop.draw(1, 0, only_kind="channel-sign") is not None


def test_an_answer_that_is_not_finite_is_a_fault() -> None:
    right = np.array([1.0, 2.0], np.float32)
    assert judge.distance(right, np.array([1.0, np.nan], np.float32)) == float("inf")
    assert judge.distance(right, right[:1]) == float("inf")
    assert judge.distance(right, right) == 0.0


def test_a_shared_constant_is_changed_for_one_node_alone(workshop: Workshop) -> None:
    prepared = workshop.prepared("tabular_embeddings")
    model = onnx.ModelProto()
    model.CopyFrom(prepared.model)
    graph = Graph(model, prepared.feeds[0])
    node, place, value = next(graph.weights("Gemm"))
    twin_node = model.graph.node.add()
    twin_node.CopyFrom(node)
    twin_node.name, twin_node.output[0] = "other", "other_output"
    graph.write(node, place, value * 2)
    assert twin_node.input[place] != node.input[place]


def test_one_row_names_the_planted_node_and_its_cause(workshop: Workshop) -> None:
    mutant = workshop.change("tabular_embeddings", KINDS["bias-zero"], Random(2))
    assert mutant is not None
    row = rows.row_of(mutant, 0, 0, healthy=False)
    source = sources()["tabular_embeddings"]
    row = rows.verify(row, mutant.model, source, workshop.folder, budget_s=30, limit=240)
    assert row.verdict == "diverged"
    assert row.rank == 1
    assert row.proven_right
    assert not row.proven_wrong


def test_a_child_that_ends_is_a_row(workshop: Workshop) -> None:
    mutant = workshop.draw(6, 0)
    assert mutant is not None
    row = rows.row_of(mutant, 6, 0, healthy=False)
    source = replace(sources()[row.model], build=sys.exit)
    row = rows.verify(row, mutant.model, source, workshop.folder, budget_s=30, limit=240)
    assert row.verdict == "crash"
    assert row.wrong == "CRASH"
