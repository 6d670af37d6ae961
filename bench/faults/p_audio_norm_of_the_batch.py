"""An InstanceNorm with running statistics was exported in train mode: it normalises by the clip instead of by them."""

import copy
from pathlib import Path

import torch
from onnx import load
from torch import Tensor, nn

from bench.architectures import LogMel
from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="audio",
    about="InstanceNorm1d(track_running_stats=True) left in train mode at export",
    cause="train-mode",
    stage="export",
)


class NormalisedMel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mel, self.norm = LogMel(), nn.InstanceNorm1d(12, affine=True, track_running_stats=True)
        self.conv = nn.Conv1d(12, 6, 3)

    def forward(self, wave: Tensor) -> Tensor:
        return self.conv(self.norm(self.mel(wave)))


def build(folder: Path) -> Built:
    torch.manual_seed(61)
    model = give_weights(NormalisedMel(), 61)
    wave = torch.randn(2, 320)
    shapes = ({0: "batch", 1: "samples"},)
    correct = export(model, (wave,), folder / "correct.onnx", shapes)
    forgotten = copy.deepcopy(model)
    forgotten.norm.train()
    faulty = export(forgotten, (wave,), folder / "faulty.onnx", shapes)
    guilty = [node.name for node in nodes(load(faulty).graph, "InstanceNormalization")]
    return Built(
        model=model,
        example_inputs=(wave,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=faulty,
        guilty=guilty,
        trigger=(torch.randn(2, 320),),
    )
