"""The nodes that a mended file changes lead the location; a mend that adds nodes says nothing of them."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxproof.diagnosis.mended_nodes import changed_nodes


def _model(*, factor: float = 2.0, last: str = "Tanh", behind: bool = False) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Mul", ["x", "factor"], ["scaled"], name="scale"),
        helper.make_node(last, ["scaled"], ["y"], name="last"),
    ]
    if behind:
        nodes.append(helper.make_node("Abs", ["y"], ["z"], name="behind"))
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    weights = [numpy_helper.from_array(np.array(factor, np.float32), "factor")]
    return helper.make_model(helper.make_graph(nodes, "g", ports[:1], ports[1:], weights))


def test_a_node_of_another_type_is_changed() -> None:
    assert changed_nodes(_model(), _model(last="Sigmoid")) == {"last"}


def test_the_reader_of_a_changed_weight_is_changed() -> None:
    assert changed_nodes(_model(), _model(factor=1.0)) == {"scale"}


def test_the_same_file_changes_nothing() -> None:
    assert changed_nodes(_model(), _model()) == frozenset()


def test_a_mend_with_nodes_of_its_own_names_none() -> None:
    assert changed_nodes(_model(), _model(last="Sigmoid", behind=True)) == frozenset()


def _chain(*, read: str) -> onnx.ModelProto:
    """Two operations and a reader of the second, or of the first."""
    nodes = [
        helper.make_node("Abs", ["x"], ["first"], name="first"),
        helper.make_node("Neg", ["first"], ["second"], name="second"),
        helper.make_node("Tanh", [read], ["y"], name="reader"),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    return helper.make_model(helper.make_graph(nodes, "g", ports[:1], ports[1:]))


def test_a_node_that_the_mend_goes_round_is_changed_and_not_its_reader() -> None:
    assert changed_nodes(_chain(read="second"), _chain(read="first")) == {"second"}


def test_a_reader_of_another_value_is_changed_where_its_first_one_is_not_computed_from_that() -> (
    None
):
    assert changed_nodes(_chain(read="first"), _chain(read="second")) == {"reader"}
