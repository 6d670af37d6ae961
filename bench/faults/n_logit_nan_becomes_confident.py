"""`logit(x, eps)` is exported with comparisons that are false for NaN: NaN turns into the largest logit."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="tabular",
    about="calibration by logit(p, eps=1e-3); a NaN probability leaves the graph as a confident 6.9",
    cause="nan-handling",
    stage="export",
    domain="nan",
    native=True,
)


class Calibrate(nn.Module):
    def forward(self, probability: Tensor) -> Tensor:
        return torch.logit(probability, eps=1e-3)


def build(folder: Path) -> Built:
    model = Calibrate().eval()
    example = (torch.rand(3, 4, generator=torch.Generator().manual_seed(1)) * 0.8 + 0.1,)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = None
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Where")]
    broken = example[0].clone()
    broken[1, 2] = float("nan")
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
