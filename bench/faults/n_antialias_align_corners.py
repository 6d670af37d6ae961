"""Antialiased `interpolate(align_corners=True)`: the exported Resize places the filter elsewhere than torch does."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="vit",
    about="position embeddings resized with antialias and align_corners, as some ViT code bases do",
    cause="attribute",
    stage="export",
    native=True,
)


class Shrink(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.interpolate(
            x, size=(5, 4), mode="bicubic", antialias=True, align_corners=True
        )


class ShrinkByMatrix(nn.Module):
    """Resizing is linear and separable: what it does to the unit vectors is its matrix."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.register_buffer("rows", self.matrix(height, 5))
        self.register_buffer("columns", self.matrix(width, 4))

    @staticmethod
    def matrix(old: int, new: int) -> Tensor:
        unit = torch.eye(old)[None, :, :, None].expand(1, old, old, 2).contiguous()
        small = nn.functional.interpolate(
            unit, size=(new, 2), mode="bicubic", antialias=True, align_corners=True
        )
        return small[0, :, :, 0].T.contiguous()

    def forward(self, x: Tensor) -> Tensor:
        return self.rows @ x @ self.columns.T


def build(folder: Path) -> Built:
    model = Shrink().eval()
    example = (torch.ones(2, 3, 9, 11),)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(ShrinkByMatrix(9, 11).eval(), example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Resize")]
    trigger = (torch.rand(2, 3, 9, 11, generator=torch.Generator().manual_seed(2)),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
