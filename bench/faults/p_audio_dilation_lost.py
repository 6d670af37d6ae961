"""A dilated WaveNet layer lost its dilation together with the padding that belongs to it, so every shape still fits."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(
    kind="audio",
    about="Conv dilation 4 and padding 4 both became 1",
    cause="attribute",
    stage="export",
)


class Dilated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, 12, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Conv1d(12, 24, 3, padding=2**k, dilation=2**k) for k in range(4)
        )
        self.out = nn.Conv1d(12, 1, 1)

    def forward(self, wave: Tensor) -> Tensor:
        x = self.stem(wave[:, None])
        for layer in self.layers:
            value, gate = layer(x).chunk(2, 1)
            x = x + torch.tanh(value) * torch.sigmoid(gate)
        return self.out(x)[:, 0]


def build(folder: Path) -> Built:
    torch.manual_seed(60)
    model = give_weights(Dilated(), 60)
    wave = torch.randn(1, 64)
    shapes = ({0: "batch", 1: "samples"},)
    correct = export(model, (wave,), folder / "correct.onnx", shapes)

    def shrink(graph: GraphProto) -> list[str]:
        conv = nodes(graph, "Conv")[3]
        set_attributes(conv, dilations=[1], pads=[1, 1])
        return [conv.name]

    guilty = edit(correct, folder / "faulty.onnx", shrink)
    return Built(
        model=model,
        example_inputs=(wave,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 90),),
    )
