"""A graph as PyTorch's exporter writes it has pairs, weights and biases after it is brought into form, and says the same."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from support import eager_quantized

from onnxproof.quantization.pair_form import in_pair_form
from onnxproof.quantization.qdq import find_biases, find_pairs, find_weights
from onnxproof.runtimes import ort


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    module, example = eager_quantized.build()
    data = eager_quantized.ordinary(1)
    quantized = eager_quantized.convert(module, lambda prepared: prepared(data))
    path: Path = tmp_path_factory.mktemp("eager") / "model.onnx"
    return onnx.load(eager_quantized.write(quantized, example, path))


def test_what_torch_exports_has_no_pairs_as_it_is(exported: onnx.ModelProto) -> None:
    assert find_pairs(exported) == []


def test_every_rounding_is_a_pair(exported: onnx.ModelProto) -> None:
    form = in_pair_form(exported)
    roundings = [node for node in exported.graph.node if node.op_type == "QuantizeLinear"]
    assert [pair.quantize for pair in find_pairs(form)] == [node.output[0] for node in roundings]
    assert {weight.integers.shape for weight in find_weights(form)} == {(8, 3, 3, 3), (10, 512)}
    assert {bias.integers.shape for bias in find_biases(form)} == {(8,), (10,)}
    assert not {"Constant", "ConstantOfShape", "Cast"} & {n.op_type for n in form.graph.node}


@pytest.mark.parametrize("level", ["", "disabled"])
def test_it_says_the_same(exported: onnx.ModelProto, level: str) -> None:
    batch = {"x": eager_quantized.ordinary(2).numpy()}
    outputs = [
        ort.open(model.SerializeToString(), level).run(batch)[0]
        for model in (exported, in_pair_form(exported))
    ]
    np.testing.assert_array_equal(*outputs)


def test_a_cast_to_another_type_stays() -> None:
    """int8 from uint8 is another number above 127."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("Cast", ["q"], ["c"], to=TensorProto.INT8),
        helper.make_node("DequantizeLinear", ["c", "s"], ["y"]),
    ]
    arrays = {"s": np.float32(0.1), "z": np.uint8(0)}
    graph = helper.make_graph(
        nodes,
        "cast",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    assert [node.op_type for node in in_pair_form(model).graph.node] == [
        "QuantizeLinear",
        "Cast",
        "DequantizeLinear",
    ]


def test_a_constant_that_is_an_output_keeps_its_node() -> None:
    node = helper.make_node(
        "Constant", [], ["y"], value=numpy_helper.from_array(np.ones(2, np.float32))
    )
    graph = helper.make_graph(
        [node], "constant", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])]
    )
    form = in_pair_form(helper.make_model(graph))
    assert [kept.op_type for kept in form.graph.node] == ["Constant"]


def test_the_module_and_its_file_are_alike(exported: onnx.ModelProto) -> None:
    """The premise of it all: torch's integer kernels and the file differ by single steps at most."""
    module, _ = eager_quantized.build()
    data = eager_quantized.ordinary(1)
    quantized = eager_quantized.convert(module, lambda prepared: prepared(data))
    with torch.no_grad():
        module_says = quantized(data).numpy()
    (file_says,) = ort.open(exported.SerializeToString(), "disabled").run({"x": data.numpy()})
    assert file_says is not None
    step = np.unique(np.abs(np.diff(np.unique(file_says)))).min()
    assert np.abs(module_says - file_says).max() <= 1.01 * step
