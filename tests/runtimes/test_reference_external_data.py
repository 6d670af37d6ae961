"""External data that the standard's evaluator can't read is an error with its reason."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxproof.errors import ModelError
from onnxproof.runtimes import reference


def test_a_link_that_onnx_does_not_follow_is_told(tmp_path: Path) -> None:
    node = helper.make_node("Add", ["x", "w"], ["y"])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    weight = numpy_helper.from_array(np.ones(4, np.float32), "w")
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], [weight])
    model = helper.make_model(graph, ir_version=9)
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.data", size_threshold=0)
    (tmp_path / "w.data").rename(tmp_path / "moved.data")
    (tmp_path / "w.data").symlink_to(tmp_path / "moved.data")
    with pytest.raises(ModelError, match=r"external-data.*link"):
        reference.open(path, "")
