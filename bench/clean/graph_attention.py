"""Attention over neighbours: a softmax per target node by scatter_reduce (amax) and scatter_add."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.clean._healthy import healthy, integers, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="graph", about="graph attention, softmax over each node's incoming edges")


class GraphAttention(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.project = nn.Linear(width, width)
        self.score = nn.Linear(2 * width, 1)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        x = self.project(nodes)
        score = functional.leaky_relu(self.score(torch.cat([x[source], x[target]], 1)).squeeze(1))
        none = torch.full_like(nodes[:, 0], -1e4)
        highest = none.scatter_reduce(0, target, score, "amax", include_self=True)
        weight = (score - highest[target]).exp()
        total = torch.zeros_like(none).scatter_add(0, target, weight)
        spread = torch.zeros_like(x).scatter_add(
            0, target[:, None].expand_as(x[source]), weight[:, None] * x[source]
        )
        return spread / total.clamp(min=1e-6)[:, None]


def build(folder: Path) -> Built:
    inputs = (normal(10, 16), integers(10, 2, 60))
    axes = ({0: "nodes"}, {1: "edges"})
    return healthy(
        folder / "graph_attention.onnx",
        give_weights(GraphAttention(), 72),
        inputs,
        axes,
        dynamo=True,
    )
