"""An automatic gain acts on quiet clips only; tracing with a loud example removed it."""

from pathlib import Path

import torch
from onnx import load
from torch import Tensor, nn

from bench.architectures import LogMel
from bench.corpus import Built, Meta, export, give_weights

META = Meta(
    kind="audio",
    about="`if rms < 0.1: wave = wave * 4` is not in the file",
    cause="baked-branch",
    stage="export",
    native=True,
)


class Gained(nn.Module):
    def __init__(self, branch: bool = True) -> None:
        super().__init__()
        self.branch = branch
        self.mel, self.head = LogMel(), nn.Linear(12, 3)

    def forward(self, wave: Tensor) -> Tensor:
        rms = wave.pow(2).mean().sqrt()
        if not self.branch:
            wave = torch.where(rms < 0.1, wave * 4, wave)
        elif rms < 0.1:
            wave = wave * 4
        return self.head(self.mel(wave).mean(-1))


def build(folder: Path) -> Built:
    torch.manual_seed(97)
    model, branchless = give_weights(Gained(), 97), give_weights(Gained(branch=False), 97)
    wave = torch.randn(2, 320)
    shapes = ({0: "batch", 1: "samples"},)
    correct = export(branchless, (wave,), folder / "correct.onnx", shapes)
    faulty = export(model, (wave,), folder / "faulty.onnx", shapes, dynamo=False)
    first = next(node.name for node in load(faulty).graph.node if "in0" in node.input)
    return Built(
        model=model,
        example_inputs=(wave,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=faulty,
        guilty=[first],
        trigger=(torch.randn(1, 400) * 0.02,),
    )
