"""Which inputs are ids into which tables, read from the graph."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxproof.inputs.inference import lookups
from onnxproof.onnxmodel import onnx_file


@pytest.mark.parametrize(
    ("axis", "tables"),
    [(0, {"ids": {"table": 5}}), (1, {"ids": {"table": 3}}), (2, {}), (1 << 40, {}), (-3, {})],
)
def test_an_axis_that_the_table_lacks_is_no_lookup(
    tmp_path: Path, axis: int, tables: dict[str, dict[str, int]]
) -> None:
    node = helper.make_node("Gather", ["table", "ids"], ["y"], axis=axis)
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weight = numpy_helper.from_array(np.zeros((5, 3), np.float32), "table")
    graph = helper.make_graph([node], "g", [ids], [y], [weight])
    onnx.save(helper.make_model(graph, ir_version=9), tmp_path / "m.onnx")
    assert lookups(onnx_file.read(tmp_path / "m.onnx")) == tables
