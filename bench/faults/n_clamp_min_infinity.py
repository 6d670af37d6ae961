"""`clamp(min=...)` becomes a Clip without an upper bound, which ONNX Runtime fills with the largest float: inf becomes 3.4e38."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="operator",
    about="distances clamped from below; an unreachable pair (inf) leaves ONNX Runtime as a finite number",
    cause="kernel",
    also=("nan-handling",),
    stage="runtime",
    domain="inf",
    native=True,
)


class Distance(nn.Module):
    def forward(self, distance: Tensor) -> Tensor:
        return distance.clamp(min=0.1)


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = Distance().eval()
    example = (torch.rand(2, 6, generator=generator),)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = None
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Clip")]
    unreachable = example[0].clone()
    unreachable[1, 3] = float("inf")
    trigger = (unreachable,)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
