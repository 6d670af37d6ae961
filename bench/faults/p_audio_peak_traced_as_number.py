"""Peak normalisation went through `.item()`, so tracing wrote the example's loudness into the file."""

from pathlib import Path

import torch
from onnx import load
from torch import Tensor, nn

from bench.architectures import LogMel
from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="audio",
    about="the waveform is divided by the peak of the example instead of its own",
    cause="baked-value",
    stage="export",
    native=True,
)


class Keyword(nn.Module):
    def __init__(self, as_number: bool = True) -> None:
        super().__init__()
        self.as_number = as_number
        self.mel, self.head = LogMel(), nn.Linear(12, 4)

    def forward(self, wave: Tensor) -> Tensor:
        peak = wave.abs().max() + 1e-6
        return self.head(self.mel(wave / (peak.item() if self.as_number else peak)).mean(-1))


def build(folder: Path) -> Built:
    torch.manual_seed(56)
    model, tensor_peak = give_weights(Keyword(), 56), give_weights(Keyword(as_number=False), 56)
    wave = torch.randn(1, 320)
    shapes = ({0: "batch", 1: "samples"},)
    correct = export(tensor_peak, (wave,), folder / "correct.onnx", shapes)
    faulty = export(model, (wave,), folder / "faulty.onnx", shapes, dynamo=False)
    guilty = [nodes(load(faulty).graph, "Div")[0].name]
    return Built(
        model=model,
        example_inputs=(wave,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=faulty,
        guilty=guilty,
        trigger=(torch.randn(1, 400) * 0.05,),
    )
