"""Another function, a slice moved by one, a negation too many: the cause is named with its node."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

import onnxproof


class Sums(torch.nn.Module):
    """A norm, a gelu and differences of neighbours."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.norm = torch.nn.LayerNorm(8)
        self.feed = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.gelu(self.feed(self.norm(x)))
        return y[:, 1:6] * 2 + y[:, 2:7]


def insert(model: onnx.ModelProto, instead: onnx.NodeProto, nodes: list[onnx.NodeProto]) -> None:
    """Put some nodes in the place of one."""
    place = list(model.graph.node).index(instead)
    model.graph.node.remove(instead)
    for offset, node in enumerate(nodes):
        model.graph.node.insert(place + offset, node)


def constant(model: onnx.ModelProto, name: str, value: Any) -> str:
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return name


def of_type(model: onnx.ModelProto, op_type: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.op_type == op_type)


def quick_gelu(model: onnx.ModelProto) -> set[str]:
    gelu = of_type(model, "Gelu")
    factor = constant(model, "factor", np.float32(1.702))
    nodes = [
        helper.make_node("Mul", [gelu.input[0], factor], ["scaled"], "scaled"),
        helper.make_node("Sigmoid", ["scaled"], ["share"], "share"),
        helper.make_node("Mul", [gelu.input[0], "share"], list(gelu.output), "quick"),
    ]
    insert(model, gelu, nodes)
    return {"scaled", "share", "quick"}


def norm_without_mean(model: onnx.ModelProto) -> set[str]:
    norm = of_type(model, "LayerNormalization")
    x, weight, bias = norm.input
    axes = constant(model, "axes", np.array([-1]))
    epsilon = constant(model, "epsilon", np.float32(1e-5))
    nodes = [
        helper.make_node("Mul", [x, x], ["square"], "square"),
        helper.make_node("ReduceMean", ["square", axes], ["power"], "power"),
        helper.make_node("Add", ["power", epsilon], ["safe"], "safe"),
        helper.make_node("Sqrt", ["safe"], ["root"], "root"),
        helper.make_node("Div", [x, "root"], ["normed"], "normed"),
        helper.make_node("Mul", ["normed", weight], ["scaled"], "scaled"),
        helper.make_node("Add", ["scaled", bias], [norm.output[0]], "shifted"),
    ]
    insert(model, norm, nodes)
    return {node.name for node in nodes}


def slice_moved(model: onnx.ModelProto) -> set[str]:
    first = of_type(model, "Slice")
    first.input[1] = constant(model, "starts", np.array([0]))
    first.input[2] = constant(model, "ends", np.array([5]))
    return {first.name}


@pytest.mark.parametrize("plant", [quick_gelu, norm_without_mean, slice_moved])
def test_the_cause_is_proven_at_its_node(
    plant: Callable[[onnx.ModelProto], set[str]], tmp_path: Path
) -> None:
    module = Sums().eval()
    example = (torch.randn(2, 7, 8),)
    shapes = ({0: "batch"},)
    program = torch.onnx.export(
        module, example, dynamic_shapes=shapes, dynamo=True, verbose=False, opset_version=20
    )
    assert program is not None
    model = program.model_proto
    guilty = plant(model)
    onnx.save(model, tmp_path / "wrong.onnx")
    proof = onnxproof.verify(
        module, tmp_path / "wrong.onnx", example, dynamic_shapes=shapes, budget_s=60
    )
    assert proof.location is not None and proof.location.nodes[0] in guilty
    assert (proof.causes[0].code, proof.causes[0].proven) == ("attribute", True)


class Normalised(torch.nn.Module):
    """Logarithms of probabilities: a reduction that a file may have as another one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - torch.logsumexp(x, -1, keepdim=True)


def test_a_maximum_for_the_logarithm_of_a_sum(tmp_path: Path) -> None:
    class Wrong(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x - x.amax(-1, keepdim=True)

    path, example = tmp_path / "wrong.onnx", (torch.randn(2, 6),)
    torch.onnx.export(Wrong().eval(), example, path, dynamo=True, verbose=False)
    proof = onnxproof.verify(Normalised().eval(), path, example, budget_s=30)
    first = proof.causes[0]
    assert (first.code, first.proven) == ("attribute", True)
    assert "as `amax` gives what the candidate gives" in first.evidence
