"""`x.any()` of floats in the legacy exporter casts to integers first: values between -1 and 1 count as zero."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="audio",
    about="voice-activity flag by x.any(1) over frames; quiet frames below 1.0 are taken for silence",
    cause="comparison",
    stage="export",
    native=True,
)


class Active(nn.Module):
    def forward(self, frames: Tensor) -> Tensor:
        return frames.any(1)


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = Active().eval()
    example = (torch.rand(4, 8, generator=generator) * 20 + 1,)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes, dynamo=False)
    correct = export(model, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Cast", "ReduceSum")]
    trigger = (torch.rand(4, 8, generator=generator) * 0.9,)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
