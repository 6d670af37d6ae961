"""Max aggregation over neighbours became a plain scatter, where the last neighbour wins: a single neighbour hides it."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(
    kind="graph", about="ScatterElements lost reduction=max", cause="scatter", stage="export"
)


class MaxAggregation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.send, self.update = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, vertices: Tensor, source: Tensor, target: Tensor) -> Tensor:
        message = torch.relu(self.send(vertices))[source]
        place = target[:, None].expand(-1, 8)
        pooled = torch.zeros_like(vertices).scatter_reduce(
            0, place, message, reduce="amax", include_self=True
        )
        return self.update(vertices + pooled)


def build(folder: Path) -> Built:
    torch.manual_seed(102)
    model = give_weights(MaxAggregation(), 102)
    vertices, source, target = torch.randn(6, 8), torch.arange(5), torch.tensor([1, 2, 3, 4, 5])
    shapes = ({0: "vertices"}, {0: "edges"}, {0: "edges"})
    correct = export(
        model, (vertices, source, target), folder / "correct.onnx", shapes, dynamo=False, opset=18
    )

    def overwrite(graph: GraphProto) -> list[str]:
        scatter = nodes(graph, "ScatterElements")[0]
        set_attributes(scatter, reduction=None)
        return [scatter.name]

    guilty = edit(correct, folder / "faulty.onnx", overwrite)
    return Built(
        model=model,
        example_inputs=(vertices, source, target),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(
            torch.randn(6, 8),
            torch.tensor([0, 1, 2, 3, 4, 5, 0]),
            torch.tensor([1, 1, 1, 2, 2, 3, 3]),
        ),
    )
