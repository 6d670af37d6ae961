"""Antialiased `interpolate(scale_factor=...)` is exported with the size alone: an odd side is sampled at another scale."""

from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, nodes, write_constant

META = Meta(
    kind="unet",
    about="antialiased half-size image pyramid; right at even sides, wrong at odd ones",
    cause="attribute",
    stage="export",
    native=True,
)


class HalfSize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True)


def by_scale(graph: onnx.GraphProto) -> list[str]:
    """Give the Resize node the scale that torch used, instead of the size."""
    resize = nodes(graph, "Resize")[0]
    write_constant(graph, "scales_of_torch", np.array([1.0, 1.0, 0.5, 0.5], np.float32))
    del resize.input[2:]
    resize.input.append("scales_of_torch")
    return [resize.name]


def build(folder: Path) -> Built:
    model = HalfSize().eval()
    example = (torch.rand(2, 3, 12, 16, generator=torch.Generator().manual_seed(1)),)
    shapes = ({0: "batch", 2: "height", 3: "width"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = folder / "correct.onnx"
    guilty = edit(faulty, correct, by_scale)
    trigger = (torch.rand(2, 3, 13, 11, generator=torch.Generator().manual_seed(2)),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=None,
        guilty=guilty,  # the edited file is right at odd sides, not at all sizes
        trigger=trigger,
    )
