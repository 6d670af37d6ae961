"""Tables that a Gather reads rows of: each row has a hash, and an empty table has none."""

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxproof.onnxmodel import onnx_file


def lookup(table: np.ndarray, path: Path) -> Path:
    """A model of one Gather."""
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["y"])],
        "g",
        [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(table, "table")],
    )
    onnx.save(helper.make_model(graph), path)
    return path


def test_only_the_changed_row_has_another_hash(tmp_path: Path) -> None:
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    changed = table.copy()
    changed[2, 1] = 7.5
    before = onnx_file.read(lookup(table, tmp_path / "a.onnx")).tables["table"]
    after = onnx_file.read(lookup(changed, tmp_path / "b.onnx")).tables["table"]
    assert np.flatnonzero(before != after).tolist() == [2]


def test_a_file_with_an_empty_table_is_read(tmp_path: Path) -> None:
    file = onnx_file.read(lookup(np.zeros((0, 3), np.float32), tmp_path / "a.onnx"))
    assert file.tables["table"].shape == (0,)
