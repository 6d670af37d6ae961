"""The graph as producers and consumers, with subgraphs, and what metadata says of a node."""

import onnx
from onnx import TensorProto, helper

from onnxproof.onnxmodel.graph import Graph, consumed_names, source_of


def branch(name: str, outer: str) -> onnx.GraphProto:
    return helper.make_graph(
        [helper.make_node("Neg", [outer], [f"{name}_out"])],
        name,
        [],
        [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None)],
    )


def test_a_branch_consumes_what_its_subgraphs_take_from_outside() -> None:
    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("then", "a"), else_branch=branch("else", "b")
    )
    assert set(consumed_names(node)) == {"a", "b", "c"}
    graph = Graph.of_nodes([node], static=["b"], inputs=["a", "c"], outputs=["y"])
    assert graph.consumers("a") == [0] and graph.producers == {"y": 0}
    assert graph.name(0) == "y"


def test_what_depends_on_weights_and_shapes_alone_is_static() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Cast", ["shape"], ["sizes"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "sizes"], ["y"]),
    ]
    graph = Graph.of_nodes(nodes, static=["w"], inputs=["x"], outputs=["y"])
    assert graph.static == {"", "w", "shape", "sizes"}


def test_the_module_and_the_line_come_from_the_exporters_metadata() -> None:
    node = helper.make_node("Neg", ["x"], ["y"], name="node_neg")
    trace = (
        'File "/site-packages/torch/nn/modules/linear.py", line 3, in forward\n    a\n'
        'File "/home/me/model.py", line 12, in forward\n    return -x\n'
    )
    for key, value in (
        ("pkg.torch.onnx.name_scopes", "['', 'block.0', 'neg']"),
        ("pkg.torch.onnx.stack_trace", trace),
    ):
        node.metadata_props.add(key=key, value=value)
    module, source = source_of(node)
    assert module == "block.0"
    assert source is not None and (source.file, source.line) == ("/home/me/model.py", 12)
    assert source.text == "return -x"


def test_the_module_comes_from_the_scope_in_a_torchscript_name() -> None:
    assert source_of(helper.make_node("Neg", ["x"], ["y"], name="/f/f.0/Neg"))[0] == "f.0"
    assert source_of(helper.make_node("Neg", ["x"], ["y"], name="/a/b/Neg"))[0] == "a.b"
    assert source_of(helper.make_node("Neg", ["x"], ["y"], name="Neg_1")) == (None, None)
