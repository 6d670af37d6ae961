"""Banned tokens get the lowest float instead of minus infinity, as exporters for half precision write it."""

from pathlib import Path

import numpy as np
import torch
from onnx import GraphProto
from onnx.numpy_helper import from_array
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="causal-lm",
    about="banned logits are -3.4e38 where the module says -inf",
    cause="masking",
    stage="export",
    domain="inf",
)


class ConstrainedHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.LayerNorm(20), nn.Linear(20, 40, bias=False)

    def forward(self, hidden: Tensor, banned: Tensor) -> Tensor:
        return self.head(self.norm(hidden)).masked_fill(banned, float("-inf"))


def build(folder: Path) -> Built:
    torch.manual_seed(40)
    model = give_weights(ConstrainedHead(), 40)
    hidden, banned = torch.randn(2, 20), torch.zeros(2, 40, dtype=torch.bool)
    shapes = ({0: "batch"}, {0: "batch"})
    correct = export(model, (hidden, banned), folder / "correct.onnx", shapes)

    def limit(graph: GraphProto) -> list[str]:
        fill = nodes(graph, "Where")[0]
        fill.input[1] = "lowest"
        graph.initializer.append(from_array(np.array(np.finfo(np.float32).min), "lowest"))
        return [fill.name]

    guilty = edit(correct, folder / "faulty.onnx", limit)
    return Built(
        model=model,
        example_inputs=(hidden, banned),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(hidden, torch.rand(2, 40) < 0.2),
    )
