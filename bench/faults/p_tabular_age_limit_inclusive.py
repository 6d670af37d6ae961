"""A rule inside the model says "older than 25"; the port wrote "25 or older", and only that age notices."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="tabular", about="Greater became GreaterOrEqual", cause="comparison", stage="export"
)


class Premium(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.young, self.old = nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, age: Tensor, history: Tensor) -> Tensor:
        return torch.where(age[:, None] > 25, self.old(history), self.young(history)).exp()


def build(folder: Path) -> Built:
    torch.manual_seed(73)
    model = give_weights(Premium(), 73)
    age, history = torch.tensor([19, 40, 63]), torch.randn(3, 4)
    shapes = ({0: "batch"}, {0: "batch"})
    correct = export(model, (age, history), folder / "correct.onnx", shapes)

    def include(graph: GraphProto) -> list[str]:
        limit = nodes(graph, "Greater")[0]
        limit.op_type = "GreaterOrEqual"
        return [limit.name]

    guilty = edit(correct, folder / "faulty.onnx", include)
    return Built(
        model=model,
        example_inputs=(age, history),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.tensor([25, 26, 24]), history),
    )
