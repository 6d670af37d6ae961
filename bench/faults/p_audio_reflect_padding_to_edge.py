"""Centre padding of a spectrogram repeats the edge instead of reflecting: only the first and last frames are wrong."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn
from torch.nn import functional

from bench.architectures import LogMel
from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(kind="audio", about="Pad mode reflect became edge", cause="attribute", stage="export")


class CentredMel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mel = LogMel()

    def forward(self, wave: Tensor) -> Tensor:
        return self.mel(functional.pad(wave[:, None], (32, 32), mode="reflect")[:, 0])


def build(folder: Path) -> Built:
    torch.manual_seed(59)
    model = give_weights(CentredMel(), 59)
    wave = torch.randn(1, 480)
    shapes = ({0: "batch", 1: "samples"},)
    correct = export(model, (wave,), folder / "correct.onnx", shapes, dynamo=False)

    def repeat(graph: GraphProto) -> list[str]:
        pad = nodes(graph, "Pad")[0]
        set_attributes(pad, mode="edge")
        return [pad.name]

    guilty = edit(correct, folder / "faulty.onnx", repeat)
    return Built(
        model=model,
        example_inputs=(wave,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 500),),
    )
