"""`log1p(x)` becomes Log(1 + x): for small x the one swallows the digits, and below 6e-8 the answer is 0."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="audio",
    about="log compression log1p of small energies; both exporters write Log(Add(x, 1))",
    cause="precision",
    stage="export",
    native=True,
)


class Compress(nn.Module):
    def forward(self, power: Tensor) -> Tensor:
        return torch.log1p(power) * 1000.0


class StableCompress(nn.Module):
    """Kahan's form: the error of 1 + x is divided out again."""

    def forward(self, power: Tensor) -> Tensor:
        total = 1.0 + power
        same = total == 1.0
        safe = torch.where(same, torch.ones_like(total), total - 1.0)
        return torch.where(same, power, torch.log(total) * (power / safe)) * 1000.0


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = Compress().eval()
    example = (torch.rand(2, 16, generator=generator) * 4 + 1,)
    shapes = ({0: "batch", 1: "frames"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(StableCompress().eval(), example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Add", "Log")]
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=(torch.rand(2, 16, generator=generator) * 1e-5,),
    )
