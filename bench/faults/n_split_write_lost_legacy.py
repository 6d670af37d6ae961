"""An in-place write into a piece of `split` reaches the whole tensor in torch; the legacy exporter drops it."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="detector",
    about="YOLO-like decoding that scales xy and wh in place after split; the boxes leave the graph undecoded",
    cause="mutation",
    stage="export",
    native=True,
)


class Decode(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        raw = torch.sigmoid(self.linear(x))
        xy, wh, _score = raw.split((2, 2, 1), dim=-1)
        xy.mul_(2.0).sub_(0.5)
        wh.mul_(4.0)
        return raw * 1.0


def build(folder: Path) -> Built:
    model = give_weights(Decode(), 37)
    example = (torch.randn(3, 8, generator=torch.Generator().manual_seed(1)),)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes, dynamo=False)
    correct = export(model, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Mul", "Sigmoid")][-2:]
    trigger = (torch.randn(3, 8, generator=torch.Generator().manual_seed(2)),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
