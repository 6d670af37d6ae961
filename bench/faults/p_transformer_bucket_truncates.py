"""Relative positions are bucketed by floor division; integer Div truncates towards zero, which moves every negative bucket."""

from pathlib import Path

import torch
from onnx import load
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="transformer",
    about="floor division of negative offsets became truncation",
    cause="rounding",
    stage="export",
)


class RelativeBias(nn.Module):
    def __init__(self, mode: str = "floor") -> None:
        super().__init__()
        self.mode = mode
        self.bias = nn.Embedding(9, 4)

    def forward(self, offset: Tensor) -> Tensor:
        bucket = torch.div(offset, 3, rounding_mode=self.mode).clamp(-4, 4) + 4
        return self.bias(bucket).softmax(-1)


def build(folder: Path) -> Built:
    torch.manual_seed(106)
    model, truncating = give_weights(RelativeBias(), 106), give_weights(RelativeBias("trunc"), 106)
    offset = torch.arange(8)[None] * torch.ones(2, 1, dtype=torch.int64)
    shapes = ({0: "batch", 1: "length"},)
    correct = export(model, (offset,), folder / "correct.onnx", shapes)
    faulty = export(truncating, (offset,), folder / "faulty.onnx", shapes)
    guilty = [node.name for node in nodes(load(faulty).graph, "Div")]
    return Built(
        model=model,
        example_inputs=(offset,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=faulty,
        guilty=guilty,
        trigger=(torch.arange(-8, 8)[None],),
    )
