"""A decay of 0.999995 a step disappears: onnxscript's rewriter takes it for one (relative 1e-5) when it removes `x * 1`."""

from pathlib import Path

import torch
from onnx import load
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="rnn",
    about="multiplication by a constant within 1e-5 of one is removed; passes atol 1e-4, rtol 1e-3",
    cause="missing-op",
    stage="export",
    native=True,
)


class Leaky(nn.Module):
    def __init__(self, decay: float = 0.999995) -> None:
        super().__init__()
        self.decay = decay
        self.enter, self.leave = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, series: Tensor) -> Tensor:
        drive = torch.tanh(self.enter(series))
        state = drive[:, 0]
        for step in range(1, 6):
            state = state * self.decay + drive[:, step]
        return self.leave(state)


def build(folder: Path) -> Built:
    torch.manual_seed(80)
    model = give_weights(Leaky(), 80)
    series = torch.randn(2, 6, 4)
    shapes = ({0: "batch"},)
    correct = export(model, (series,), folder / "correct.onnx", shapes, dynamo=False)
    faulty = export(model, (series,), folder / "faulty.onnx", shapes)
    guilty = [node.name for node in nodes(load(faulty).graph, "Add")][-5:]
    return Built(
        model=model,
        example_inputs=(series,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=faulty,
        guilty=guilty,
        trigger=(torch.randn(6, 6, 4) * 3,),
    )
