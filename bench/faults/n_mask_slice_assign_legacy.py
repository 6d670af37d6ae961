"""`x[mask, 2:4] = 0` of the legacy exporter pairs the chosen rows with the columns one by one instead of crossing them."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="detector",
    about="clearing two fields of low-score boxes by a row mask and a slice; right for the first row alone",
    cause="scatter",
    stage="export",
    native=True,
)


class ClearWeak(nn.Module):
    def forward(self, boxes: Tensor) -> Tensor:
        boxes = boxes.clone()
        boxes[boxes[:, 0] < 0, 2:4] = 0.0
        return boxes


class ClearWeakByWhere(nn.Module):
    def forward(self, boxes: Tensor) -> Tensor:
        field = torch.arange(6)
        weak = (boxes[:, :1] < 0) & ((field >= 2) & (field < 4))[None]
        return torch.where(weak, torch.zeros_like(boxes), boxes)


def scored(seed: int, *scores: float) -> tuple[Tensor]:
    boxes = torch.randn(5, 6, generator=torch.Generator().manual_seed(seed))
    boxes[:, 0] = torch.tensor(scores)
    return (boxes,)


def build(folder: Path) -> Built:
    model = ClearWeak().eval()
    example = scored(1, -0.1, 0.9, 0.8, 0.7, 0.6)
    shapes = None
    faulty = export(model, example, folder / "faulty.onnx", shapes, dynamo=False)
    correct = export(ClearWeakByWhere().eval(), example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "ScatterND", "Concat", "Expand")]
    trigger = scored(2, 0.9, -0.1, 0.8, -0.7, 0.6)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
