"""`x >> k` of the legacy exporter is a division by 2**k, which rounds negative numbers towards zero."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="operator",
    about="fixed-point audio samples scaled by an arithmetic right shift; negative samples are off by one",
    cause="rounding",
    stage="export",
    native=True,
)


class Requantize(nn.Module):
    def forward(self, samples: Tensor) -> Tensor:
        return (samples * 3) >> 4


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = Requantize().eval()
    example = (torch.randint(0, 30000, (2, 12), generator=generator, dtype=torch.int32),)
    shapes = ({0: "batch", 1: "time"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes, dynamo=False)
    correct = export(model, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Div")]
    trigger = (torch.randint(-30000, 0, (2, 12), generator=generator, dtype=torch.int32),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
