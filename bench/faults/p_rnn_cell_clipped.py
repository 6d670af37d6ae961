"""A cell clip that another framework's layer carried by default was written into the LSTM node: only strong inputs reach it."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(
    kind="rnn",
    about="LSTM clip=3 limits gate inputs that the module leaves free",
    cause="clipping",
    stage="export",
)


class Sensor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 12, batch_first=True), nn.Linear(12, 2)

    def forward(self, series: Tensor) -> Tensor:
        return self.head(self.lstm(series)[0])


def build(folder: Path) -> Built:
    torch.manual_seed(114)
    model = give_weights(Sensor(), 114)
    series = torch.randn(2, 6, 4) * 0.3
    shapes = ({0: "batch", 1: "steps"},)
    correct = export(model, (series,), folder / "correct.onnx", shapes, dynamo=False)

    def limit(graph: GraphProto) -> list[str]:
        layer = nodes(graph, "LSTM")[0]
        set_attributes(layer, clip=3.0)
        return [layer.name]

    guilty = edit(correct, folder / "faulty.onnx", limit)
    return Built(
        model=model,
        example_inputs=(series,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 9, 4) * 6,),
    )
