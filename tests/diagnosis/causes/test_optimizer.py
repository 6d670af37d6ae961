"""The cause `optimizer`: one optimizer of the runtime, named and left out."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from support.fake_reference import FakeReference
from support.module_workbenches import file_of, node
from support.workbenches import without_tally, workbench

from onnxproof.diagnosis.causes import optimizer
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.results import Location, Stage

X = {"x": np.linspace(-3, 3, 64, dtype=np.float32).reshape(4, 16)}
CONSTANTS = {
    "coarse": np.array(0.1, np.float32),
    "fine": np.array(0.07, np.float32),
    "zero": np.array(0, np.int8),
    "ten": np.array(10, np.int8),
    "w": np.eye(16, dtype=np.float32),
}
NODES = [
    node("MatMul", "x", "w", output="body"),
    node("QuantizeLinear", "body", "coarse", "zero", output="q1"),
    node("DequantizeLinear", "q1", "coarse", "zero", output="d1"),
    node("QuantizeLinear", "d1", "fine", "ten", output="q2"),
    node("DequantizeLinear", "q2", "fine", "ten", output="d2"),
    node("MatMul", "d2", "w"),
]
MERGING = "DoubleQDQPairsRemover"


def round_twice(inputs: Mapping[str, Any]) -> list[Any]:
    """What the standard says: to int8 by one scale, then by the other."""
    once = np.clip(np.round(inputs["x"] / CONSTANTS["coarse"]), -128, 127) * CONSTANTS["coarse"]
    twice = np.clip(np.round(once / CONSTANTS["fine"]) + 10, -128, 127) - 10
    return [twice.astype(np.float32) * CONSTANTS["fine"]]


def bench_of(folder: Path, name: str | None, stage: Stage = Stage.OPTIMIZER) -> Workbench:
    """Two roundings with other scales, which an optimizer of ONNX Runtime merges into one."""
    file = file_of(NODES, X, CONSTANTS)
    standard = FakeReference(round_twice, has_truth=False, example=X)
    bench = workbench(folder, file, round_twice(X)[0], X, reference=standard)
    location = Location(stage=stage, optimizer=name)
    return Workbench(
        bench.scene,
        replace(bench.located, location=location),
        cases=bench.cases,
        policy=bench.policy,
    )


def test_without_the_optimizer_that_merges_two_roundings_the_answers_are_right(
    tmp_path: Path,
) -> None:
    bench = bench_of(tmp_path, MERGING)
    assert bench.before > 1e-3
    tried = optimizer.test(bench)
    assert isinstance(tried, Tried)
    assert tried.proven
    assert without_tally(tried.evidence) == f"without the optimizer {MERGING} the answers are right"
    assert tried.options == (MERGING,)
    assert tried.fix is not None
    assert tried.fix.what == f"onnxruntime.InferenceSession(..., disabled_optimizers=['{MERGING}'])"


def test_an_optimizer_that_changes_nothing_is_not_proven(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, "GeluFusionL2")
    tried = optimizer.test(bench)
    assert isinstance(tried, Tried)
    assert not tried.proven
    assert tried.after == bench.before


def test_without_a_name_nothing_is_proven(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, None)
    tried = optimizer.test(bench)
    assert isinstance(tried, Tried)
    assert not tried.proven
    assert tried.options == ()
    assert tried.evidence.endswith("no single optimizer could be named")


def test_a_fault_of_another_stage_is_no_optimizers(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, MERGING, Stage.EXPORT)
    assert optimizer.test(bench) == "the fault shows without optimisation, too"
