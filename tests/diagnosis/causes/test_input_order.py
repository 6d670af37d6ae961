"""The cause `input-order`: inputs or outputs that are exchanged, as locating finds them."""

from pathlib import Path
from typing import Any

import numpy as np
from support.module_workbenches import file_of, node
from support.workbenches import without_tally, workbench

from onnxproof.diagnosis.causes import input_order
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.diagnosis.locate import locate

RNG = np.random.default_rng(0)
PAIR = {name: RNG.normal(size=(2, 3)).astype(np.float32) for name in ("a", "b")}


def located_bench(folder: Path, wrong: Any, right: Any) -> Workbench:
    """The workbench of a node for another one, as it is after locating."""
    bench = workbench(folder, file_of([wrong], PAIR), file_of([right], PAIR), PAIR)
    reference: Any = bench.scene.reference
    reference.tree = {}
    found = locate(bench.scene)
    return Workbench(bench.scene, found, cases=bench.cases, policy=bench.policy)


def test_inputs_that_are_exchanged_are_named(tmp_path: Path) -> None:
    bench = located_bench(tmp_path, node("Sub", "a", "b"), node("Sub", "b", "a"))
    tried = input_order.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "input-order")
    assert without_tally(tried.evidence) == (
        "the inputs are exchanged: `a` belongs to the file's `b`, `b` belongs to the file's `a`; "
        "paired so, the answers are right"
    )


def test_another_operation_on_right_inputs_is_no_exchange(tmp_path: Path) -> None:
    bench = workbench(tmp_path, file_of([node("Sub", "a", "b")], PAIR), PAIR["a"] + 1, PAIR)
    assert input_order.test(bench) == (
        "no exchange of inputs or outputs of one shape, or of columns, comes right"
    )
