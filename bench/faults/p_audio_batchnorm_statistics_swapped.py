"""Running mean and variance have one shape, and a converter passed them in the other order."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn

from bench.architectures import LogMel
from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="audio",
    about="BatchNormalization mean and variance inputs swapped",
    cause="weights",
    stage="export",
)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mel, self.norm, self.conv = (
            LogMel(),
            nn.BatchNorm1d(12),
            nn.Conv1d(12, 5, 3, padding=1),
        )

    def forward(self, wave: Tensor) -> Tensor:
        return self.conv(self.norm(self.mel(wave))).amax(-1)


def build(folder: Path) -> Built:
    torch.manual_seed(113)
    model = give_weights(Tagger(), 113)
    model.norm.running_mean.abs_().add_(0.2)
    wave = torch.randn(1, 320)
    shapes = ({0: "batch", 1: "samples"},)
    correct = export(model, (wave,), folder / "correct.onnx", shapes)

    def swap(graph: GraphProto) -> list[str]:
        norm = nodes(graph, "BatchNormalization")[0]
        norm.input[3], norm.input[4] = norm.input[4], norm.input[3]
        return [norm.name]

    guilty = edit(correct, folder / "faulty.onnx", swap)
    return Built(
        model=model,
        example_inputs=(wave,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 500),),
    )
