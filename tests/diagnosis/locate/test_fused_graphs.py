"""A file as ONNX Runtime's optimizer fuses it: biases move into the node behind, and the guilty node is still the one that is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from onnxproof import api
from onnxproof.results import Verdict

WIDTH = 16
LAYERS = 2
DOMAIN = "com.microsoft"


class Layer(torch.nn.Module):
    """Two projections with a gelu between them, added to the input and normalized."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(WIDTH, WIDTH)
        self.outer = torch.nn.Linear(WIDTH, WIDTH)
        self.norm = torch.nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.gelu(self.inner(x))
        return self.norm(x + self.outer(hidden))  # type: ignore[no-any-return]


def make_module() -> torch.nn.Sequential:
    torch.manual_seed(5)
    return torch.nn.Sequential(*(Layer() for _ in range(LAYERS))).eval()


def fused_model(module: torch.nn.Module) -> onnx.ModelProto:
    """MatMul, BiasGelu, MatMul and SkipLayerNormalization with the bias of the second product, for each layer."""
    weights = {name: value.numpy() for name, value in module.state_dict().items()}
    constants = {name: value.T if value.ndim == 2 else value for name, value in weights.items()}
    nodes = []
    last = "x"
    for k in range(LAYERS):
        tail = [f"{k}.norm.weight", f"{k}.norm.bias", f"{k}.outer.bias"]
        nodes += [
            helper.make_node("MatMul", [last, f"{k}.inner.weight"], [f"a{k}"], f"inner{k}"),
            helper.make_node(
                "BiasGelu", [f"a{k}", f"{k}.inner.bias"], [f"b{k}"], f"gelu{k}", domain=DOMAIN
            ),
            helper.make_node("MatMul", [f"b{k}", f"{k}.outer.weight"], [f"c{k}"], f"outer{k}"),
            helper.make_node(
                "SkipLayerNormalization",
                [f"c{k}", last, *tail],
                [f"y{k}"],
                f"norm{k}",
                domain=DOMAIN,
                epsilon=1e-5,
            ),
        ]
        last = f"y{k}"
    shape = ["batch", 6, WIDTH]
    graph = helper.make_graph(
        nodes,
        "fused",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.ascontiguousarray(v), n) for n, v in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def change_constant(model: onnx.ModelProto, name: str, change: Callable[[Any], Any]) -> None:
    for tensor in model.graph.initializer:
        if tensor.name == name:
            changed = np.ascontiguousarray(change(numpy_helper.to_array(tensor)))
            tensor.CopyFrom(numpy_helper.from_array(changed, name))


def set_epsilon(model: onnx.ModelProto) -> str:
    node = next(node for node in model.graph.node if node.name == "norm0")
    node.attribute[0].f = 0.05
    return node.name


def drop_bias_of_norm(model: onnx.ModelProto) -> str:
    node = next(node for node in model.graph.node if node.name == "norm0")
    del node.input[4]
    return node.name


def drop_bias_of_gelu(model: onnx.ModelProto) -> str:
    change_constant(model, "1.inner.bias", np.zeros_like)
    return "gelu1"


def reverse_columns(model: onnx.ModelProto) -> str:
    change_constant(model, "0.outer.weight", lambda weight: weight[:, ::-1])
    return "outer0"


def scale_row(model: onnx.ModelProto) -> str:
    change_constant(
        model, "1.inner.weight", lambda weight: weight * (1 + np.eye(1, WIDTH, dtype=np.float32)).T
    )
    return "inner1"


@pytest.mark.parametrize(
    "plant", [set_epsilon, drop_bias_of_norm, drop_bias_of_gelu, reverse_columns, scale_row]
)
def test_the_guilty_node_of_a_fused_graph_comes_first(
    tmp_path: Path, plant: Callable[[onnx.ModelProto], str]
) -> None:
    module = make_module()
    model = fused_model(module)
    guilty = plant(model)
    path = tmp_path / "fused.onnx"
    onnx.save(model, path)
    proof = api.verify(
        module,
        path,
        (torch.randn(2, 6, WIDTH, generator=torch.Generator().manual_seed(1)),),
        only=("example", "ordinary-0"),
    )
    assert proof.verdict is Verdict.DIVERGED
    assert proof.location is not None and proof.location.nodes[:1] == (guilty,)


def test_the_fused_graph_itself_is_faithful(tmp_path: Path) -> None:
    module = make_module()
    path = tmp_path / "fused.onnx"
    onnx.save(fused_model(module), path)
    proof = api.verify(module, path, (torch.ones(2, 6, WIDTH),), only=("ordinary-0",))
    assert proof.verdict is Verdict.FAITHFUL
