"""ONNX Runtime's MaxPool skips NaN; torch passes it on."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="conv",
    about="a NaN pixel (missing sensor value) disappears in max pooling under ONNX Runtime",
    cause="nan-handling",
    stage="runtime",
    domain="nan",
    native=True,
)


class Pool(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.max_pool2d(x, 2)


def build(folder: Path) -> Built:
    model = Pool().eval()
    example = (torch.randn(1, 2, 6, 6, generator=torch.Generator().manual_seed(1)),)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = None
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "MaxPool")]
    broken = example[0].clone()
    broken[0, 1, 2, 2] = float("nan")
    trigger = (broken,)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
