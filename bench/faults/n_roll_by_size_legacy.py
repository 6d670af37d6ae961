"""`x.roll(x.shape[1] // 2, 1)` of the legacy exporter: the shift is the half of the example's length."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="audio",
    about="spectrum centred by rolling half its length; another length is rolled by the old half",
    cause="baked-dimension",
    stage="export",
    native=True,
)


class Centre(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.roll(x.shape[1] // 2, 1) * 0.5


class CentreByCat(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        cut = x.shape[1] - x.shape[1] // 2
        return torch.cat([x[:, cut:], x[:, :cut]], 1) * 0.5


def build(folder: Path) -> Built:
    model = Centre().eval()
    example = (torch.randn(2, 8, generator=torch.Generator().manual_seed(1)),)
    shapes = ({0: "batch", 1: "bins"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes, dynamo=False)
    correct = export(CentreByCat().eval(), example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Slice")]
    trigger = (torch.randn(2, 13, generator=torch.Generator().manual_seed(2)),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
