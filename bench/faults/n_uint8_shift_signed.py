"""`uint8 << k` of the dynamo exporter is cast to int8: the output's type is another one, and values above 127 are negative."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="operator",
    about="unpacking 4-bit weights or pixels with shifts on uint8; the high nibble comes out negative",
    cause="integer-width",
    stage="export",
    native=True,
)


class HighNibble(nn.Module):
    def forward(self, packed: Tensor) -> Tensor:
        return packed << 4


def build(folder: Path) -> Built:
    model = HighNibble().eval()
    example = (torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.uint8),)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(model, example, folder / "correct.onnx", shapes, dynamo=False)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Cast")]
    trigger = (torch.tensor([[12, 15, 9], [8, 200, 31]], dtype=torch.uint8),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
