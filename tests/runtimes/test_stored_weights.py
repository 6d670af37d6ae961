"""Large weights of a graph in float64 are widened when a node reads them: the same bits, and never all at once."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxproof.runtimes import reference
from onnxproof.runtimes.evaluator import evaluator, stored_weights
from onnxproof.runtimes.evaluator.stored_weights import StoredWeight

RNG = np.random.default_rng(4)
TABLE = RNG.standard_normal((40, 8)).astype(np.float32)
MATRIX = RNG.standard_normal((8, 8)).astype(np.float32)


def _model() -> onnx.ModelProto:
    """Rows of a table times a matrix, of which a branch reads a weight of the outer graph; the matrix is an output too."""
    then = helper.make_graph(
        [helper.make_node("MatMul", ["rows", "matrix"], ["inner"])],
        "then",
        [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)],
    )
    otherwise = helper.make_graph(
        [helper.make_node("Identity", ["rows"], ["same"])],
        "else",
        [],
        [helper.make_tensor_value_info("same", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("If", ["yes"], ["product"], then_branch=then, else_branch=otherwise),
        helper.make_node("MatMul", ["product", "matrix"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("matrix", TensorProto.FLOAT, [8, 8]),
        ],
        [
            numpy_helper.from_array(TABLE, "table"),
            numpy_helper.from_array(MATRIX, "matrix"),
            numpy_helper.from_array(np.array(True), "yes"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("option", ["", "float64"])
def test_a_weight_that_stays_where_it_is_gives_the_same(
    option: str, external: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(_model(), path, save_as_external_data=external, location="w", size_threshold=0)
    monkeypatch.setattr(stored_weights, "SMALL", 0)
    monkeypatch.setattr(evaluator, "SMALL", 0)
    ids = np.array([3, 0, 39])
    session = reference.open(path, option)
    outputs = session.run({"ids": ids})
    dtype: Any = np.float64 if option else np.float32
    table, matrix = TABLE.astype(dtype), MATRIX.astype(dtype)
    assert outputs[0] is not None and outputs[0].dtype == dtype
    np.testing.assert_array_equal(outputs[0], table[ids] @ matrix @ matrix)
    np.testing.assert_array_equal(outputs[1], matrix)
    held = session._evaluator.rt_inits_["table"]
    assert isinstance(held, StoredWeight) == bool(option or external)
