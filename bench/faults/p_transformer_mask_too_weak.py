"""Masked scores get -1e4, an old half-precision habit, instead of minus infinity: large unscaled scores shine through."""

from pathlib import Path

import numpy as np
import torch
from onnx import GraphProto
from onnx.numpy_helper import from_array
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="transformer",
    about="mask value -1e4 instead of -inf; shows for scores of that size",
    cause="masking",
    stage="export",
)


class DotAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(24, 24) for _ in range(3))

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(-2, -1)
        return scores.masked_fill(padding[:, None, :], float("-inf")).softmax(-1) @ self.value(x)


def build(folder: Path) -> Built:
    torch.manual_seed(116)
    model = give_weights(DotAttention(), 116)
    x, padding = torch.randn(2, 6, 24), torch.arange(6)[None] >= torch.tensor([[6], [4]])
    shapes = ({0: "batch", 1: "length"}, {0: "batch", 1: "length"})
    correct = export(model, (x, padding), folder / "correct.onnx", shapes)

    def weaken(graph: GraphProto) -> list[str]:
        fill = nodes(graph, "Where")[0]
        graph.initializer.append(from_array(np.array(-1e4, dtype=np.float32), "weak_mask"))
        fill.input[1] = "weak_mask"
        return [fill.name]

    guilty = edit(correct, folder / "faulty.onnx", weaken)
    return Built(
        model=model,
        example_inputs=(x, padding),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(4, 6, 24) * 120, (torch.arange(6)[None] >= 2).expand(4, 6).clone()),
    )
