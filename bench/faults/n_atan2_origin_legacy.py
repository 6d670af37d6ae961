"""The legacy exporter builds atan2 from Div and Atan: at the origin 0/0 gives NaN where torch gives 0."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="operator",
    about="phase of a spectrum by atan2(imag, real); a silent bin (0, 0) becomes NaN in the legacy export",
    cause="nan-handling",
    stage="export",
    native=True,
)


class Phase(nn.Module):
    def forward(self, real: Tensor, imag: Tensor) -> Tensor:
        return torch.atan2(imag, real) / torch.pi


class PhaseByQuadrant(nn.Module):
    """atan2 with both zeros, both signs of zero and both infinities taken care of."""

    def forward(self, real: Tensor, imag: Tensor) -> Tensor:
        zeros = (real == 0) & (imag == 0)
        infinities = torch.isinf(real) & torch.isinf(imag)
        ratio = torch.where(infinities, torch.sign(real) * torch.sign(imag), imag / real)
        angle = torch.where(zeros, torch.zeros_like(ratio), torch.atan(ratio))
        side = torch.where(imag == 0, 1 / imag, imag)
        turn = torch.where(side < 0, -torch.ones_like(ratio), torch.ones_like(ratio)) * torch.pi
        behind = torch.where(real == 0, 1 / real, real) < 0
        return torch.where(behind, angle + turn, angle) / torch.pi


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = Phase().eval()
    example = (torch.randn(2, 9, generator=generator), torch.randn(2, 9, generator=generator))
    shapes = ({0: "batch", 1: "bins"}, {0: "batch", 1: "bins"})
    faulty = export(model, example, folder / "faulty.onnx", shapes, dynamo=False)
    correct = export(PhaseByQuadrant().eval(), example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Div", "Atan")][:2]
    real, imag = (part.clone() for part in example)
    real[1, 4:], imag[1, 4:] = 0.0, 0.0
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=(real, imag),
    )
