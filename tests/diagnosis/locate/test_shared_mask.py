"""A mask that all layers read: the node that makes it is named, not the first softmax behind it."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

import onnxproof


class Layers(torch.nn.Module):
    """Two layers of attention with one additive mask."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 24) for _ in range(2)])

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        lowest = torch.finfo(x.dtype).min
        hidden = torch.where(keep[:, None, :] > 0, torch.zeros((), dtype=x.dtype), lowest)
        for layer in self.layers:
            query, key, value = layer(x).chunk(3, -1)
            scores = query @ key.transpose(1, 2) * 0.35 + hidden
            x = x + scores.softmax(-1) @ value
        return x


def fill_with_zero(model: onnx.ModelProto, where: onnx.NodeProto) -> None:
    """What was to be hidden is added 0 to."""
    value = numpy_helper.from_array(np.zeros((), np.float32), "nothing")
    model.graph.initializer.append(value)
    where.input[2] = "nothing"


def exchange(model: onnx.ModelProto, where: onnx.NodeProto) -> None:
    """What was to be seen is hidden."""
    where.input[1], where.input[2] = where.input[2], where.input[1]


@pytest.mark.parametrize("plant", [fill_with_zero, exchange])
def test_the_node_that_makes_the_mask_comes_first(plant: object, tmp_path: Path) -> None:
    module = Layers().eval()
    keep = torch.ones(2, 6, dtype=torch.int64)
    keep[1, 4:] = 0
    example = (torch.randn(2, 6, 8), keep)
    shapes = ({0: "batch", 1: "length"}, {0: "batch", 1: "length"})
    program = torch.onnx.export(module, example, dynamic_shapes=shapes, dynamo=True, verbose=False)
    assert program is not None
    model = program.model_proto
    where = next(node for node in model.graph.node if node.op_type == "Where")
    plant(model, where)  # type: ignore[operator]
    onnx.save(model, tmp_path / "wrong.onnx")
    proof = onnxproof.verify(
        module, tmp_path / "wrong.onnx", example, dynamic_shapes=shapes, budget_s=60
    )
    assert proof.location is not None and proof.location.nodes[0] == where.name
    assert (proof.causes[0].code, proof.causes[0].proven) == ("masking", True)
