"""`linspace(0, 1, n)` of the legacy exporter divides by n - 1: one step gives NaN where torch gives the start."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="transformer",
    about="relative time features by linspace over a dynamic length; a single frame turns into NaN",
    cause="nan-handling",
    stage="export",
    native=True,
)


class TimeFeatures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(5, 3)

    def ramp(self, x: Tensor) -> Tensor:
        return torch.linspace(0, 1, x.shape[1])

    def forward(self, x: Tensor) -> Tensor:
        ramp = self.ramp(x)[None, :, None].expand(x.shape[0], -1, 1)
        return self.mix(torch.cat([x, ramp.to(x.dtype)], 2))


class SafeTimeFeatures(TimeFeatures):
    def ramp(self, x: Tensor) -> Tensor:
        step = torch.ones_like(x[0, :, 0]).cumsum(0) - 1
        return step / step[-1:].clamp(min=1)


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = give_weights(TimeFeatures(), 25)
    other = SafeTimeFeatures().eval()
    other.load_state_dict(model.state_dict())
    example = (torch.randn(2, 6, 4, generator=generator),)
    shapes = ({0: "batch", 1: "time"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes, dynamo=False)
    correct = export(other, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Div")]
    trigger = (torch.randn(2, 1, 4, generator=generator),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
