"""Pooling divides by `int(frames)`, which tracing writes down: longer clips get sums that are too large."""

from pathlib import Path

import torch
from onnx import load
from torch import Tensor, nn

from bench.architectures import LogMel
from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="audio",
    about="the divisor of mean pooling is the example's number of frames",
    cause="baked-dimension",
    stage="export",
    native=True,
)


class SpeakerVector(nn.Module):
    def __init__(self, as_number: bool = True) -> None:
        super().__init__()
        self.as_number = as_number
        self.mel = LogMel()
        self.conv, self.head = nn.Conv1d(12, 16, 3, padding=1), nn.Linear(16, 8)

    def forward(self, wave: Tensor) -> Tensor:
        frames = torch.relu(self.conv(self.mel(wave)))
        count = int(frames.shape[-1]) if self.as_number else frames.shape[-1]
        return self.head(frames.sum(-1) / count)


def build(folder: Path) -> Built:
    torch.manual_seed(57)
    model, symbolic = (
        give_weights(SpeakerVector(), 57),
        give_weights(SpeakerVector(as_number=False), 57),
    )
    wave = torch.randn(2, 320)
    shapes = ({0: "batch", 1: "samples"},)
    correct = export(symbolic, (wave,), folder / "correct.onnx", shapes)
    faulty = export(model, (wave,), folder / "faulty.onnx", shapes)
    guilty = [nodes(load(faulty).graph, "Div")[-1].name]
    return Built(
        model=model,
        example_inputs=(wave,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=faulty,
        guilty=guilty,
        trigger=(torch.randn(2, 720),),
    )
