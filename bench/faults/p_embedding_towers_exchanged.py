"""The names of two same-shaped inputs were given in the wrong order: the query goes through the passage tower."""

from pathlib import Path

import torch
from onnx import load
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="embedding",
    about="the inputs query and passage are exchanged in the file",
    cause="input-order",
    stage="export",
)


class TwoTowers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(12, 8), nn.Linear(12, 8)

    def forward(self, query: Tensor, passage: Tensor) -> Tensor:
        return (torch.tanh(self.left(query)) * torch.tanh(self.right(passage))).sum(-1)


def build(folder: Path) -> Built:
    torch.manual_seed(93)
    model = give_weights(TwoTowers(), 93)
    query, passage = torch.randn(3, 12), torch.randn(3, 12)
    shapes = ({0: "batch"}, {0: "batch"})
    correct = export(
        model,
        (query, passage),
        folder / "correct.onnx",
        shapes,
        dynamo=False,
        input_names=("query", "passage"),
    )
    faulty = export(
        model,
        (query, passage),
        folder / "faulty.onnx",
        shapes,
        dynamo=False,
        input_names=("passage", "query"),
    )
    guilty = [node.name for node in nodes(load(faulty).graph, "Gemm")]
    return Built(
        model=model,
        example_inputs=(query, passage),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=faulty,
        guilty=guilty,
        trigger=(torch.randn(4, 12), torch.randn(4, 12)),
    )
