"""Crossed categories are hashed as a * 100003 + b; a backend without 64-bit integers multiplies in 32 bits."""

from pathlib import Path

import torch
from onnx import load
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="tabular",
    about="the product of a feature cross wraps at 2^31; small ids are identical",
    cause="integer-width",
    stage="export",
)


class Crossed(nn.Module):
    def __init__(self, width: torch.dtype = torch.int64) -> None:
        super().__init__()
        self.width = width
        self.table, self.head = nn.Embedding(101, 8), nn.Linear(8, 2)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        bucket = (user.to(self.width) * 100003 + item.to(self.width)) % 101
        return self.head(self.table(bucket.long()))


def build(folder: Path) -> Built:
    torch.manual_seed(76)
    model, narrow = give_weights(Crossed(), 76), give_weights(Crossed(torch.int32), 76)
    user, item = torch.randint(0, 1000, (4,)), torch.randint(0, 1000, (4,))
    shapes = ({0: "batch"}, {0: "batch"})
    correct = export(model, (user, item), folder / "correct.onnx", shapes, dynamo=False)
    faulty = export(narrow, (user, item), folder / "faulty.onnx", shapes, dynamo=False)
    graph = load(faulty).graph
    guilty = [
        nodes(graph, "Mul")[0].name,
        nodes(graph, "Cast")[0].name,
        nodes(graph, "Add")[0].name,
    ]
    return Built(
        model=model,
        example_inputs=(user, item),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=faulty,
        guilty=guilty,
        trigger=(torch.randint(30000, 10**6, (4,)), item),
    )
