"""The legacy exporter writes `//` as a truncating division: every negative quotient that is not whole is one too high."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="embedding",
    about="relative positions bucketed by // 4 before an embedding; negative offsets land in the wrong bucket",
    cause="rounding",
    stage="export",
    native=True,
)


class RelativeBias(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(17, 4)

    def forward(self, offset: Tensor) -> Tensor:
        return self.table((offset // 4).clamp(-8, 8) + 8)


def build(folder: Path) -> Built:
    model = give_weights(RelativeBias(), 13)
    example = (torch.arange(12).reshape(2, 6),)
    shapes = ({0: "batch", 1: "seq"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes, dynamo=False)
    correct = export(model, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Div")]
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=(torch.arange(-12, 0).reshape(2, 6),),
    )
