"""The last step was taken by the example's index, so a longer series is judged in its middle."""

from pathlib import Path

import numpy as np
import torch
from onnx import GraphProto
from onnx.numpy_helper import from_array
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="rnn",
    about="Gather takes step 7 where the module takes step -1",
    cause="baked-dimension",
    stage="export",
)


class Forecaster(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(5, 16, batch_first=True)
        self.head = nn.Linear(16, 2)

    def forward(self, series: Tensor) -> Tensor:
        return self.head(self.gru(series)[0][:, -1])


def build(folder: Path) -> Built:
    torch.manual_seed(54)
    model = give_weights(Forecaster(), 54)
    series = torch.randn(2, 8, 5)
    shapes = ({0: "batch", 1: "steps"},)
    correct = export(model, (series,), folder / "correct.onnx", shapes, dynamo=False)

    def freeze(graph: GraphProto) -> list[str]:
        last = next(n for n in nodes(graph, "Gather") if n.attribute[0].i == 1)
        last.input[1] = "example_last"
        graph.initializer.append(from_array(np.array(7, dtype=np.int64), "example_last"))
        return [last.name]

    guilty = edit(correct, folder / "faulty.onnx", freeze)
    return Built(
        model=model,
        example_inputs=(series,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 13, 5),),
    )
