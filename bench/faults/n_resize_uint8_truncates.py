"""Bilinear Resize of uint8 in ONNX Runtime cuts the fraction off; torch rounds to the nearest level."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="conv",
    about="a uint8 camera image resized inside the graph; half of the pixels are one level too dark",
    cause="kernel",
    stage="runtime",
    native=True,
)


class Resize(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return nn.functional.interpolate(image, size=(9, 11), mode="bilinear")


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = Resize().eval()
    example = (torch.full((1, 3, 6, 6), 128, dtype=torch.uint8),)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = None
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Resize")]
    trigger = (torch.randint(0, 256, (1, 3, 6, 6), generator=generator, dtype=torch.uint8),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
