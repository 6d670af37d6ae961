"""Whether a node computes positions, which are looked up in a table."""

from pathlib import Path

import numpy as np
import pytest
from support.module_workbenches import file_of, node
from support.workbenches import workbench

from onnxproof.diagnosis.causes import attribute
from onnxproof.diagnosis.counterfactuals.table_index import computes_table_index
from onnxproof.diagnosis.counterfactuals.workbench import Tried

IDS = {"ids": np.array([[0, 3, 1], [2, 2, 4]], np.int64)}
CONSTANTS = {
    "one": np.array(1, np.int64),
    "none": np.array(0, np.int64),
    "table": np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32),
    "list": np.arange(9, dtype=np.float32),
}


def lookup(table: str, offset: str) -> list:
    return [node("Add", "ids", offset, output="places"), node("Gather", table, "places")]


@pytest.mark.parametrize(("table", "looked_up"), [("table", True), ("list", False)])
def test_only_a_table_of_rows_is_looked_up(table: str, looked_up: bool, tmp_path: Path) -> None:
    wrong = file_of(lookup(table, "one"), IDS, CONSTANTS)
    right = file_of(lookup(table, "none"), IDS, CONSTANTS)
    bench = workbench(tmp_path, wrong, right, IDS, nodes=["places"])
    assert computes_table_index(bench, bench.nodes[0]) is looked_up
    assert not computes_table_index(bench, bench.model.graph.node[1])


def test_positions_that_are_counted_from_one_have_their_own_code(tmp_path: Path) -> None:
    wrong = file_of(lookup("table", "one"), IDS, CONSTANTS)
    right = file_of(lookup("table", "none"), IDS, CONSTANTS)
    bench = workbench(tmp_path, wrong, right, IDS, nodes=["places"])
    bench.located.traced_values.clear()
    tried = attribute._try_operands(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "position")
