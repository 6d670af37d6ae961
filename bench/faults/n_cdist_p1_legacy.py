"""`cdist(p=1)` of the legacy exporter has no absolute value: differences cancel, and distances come out small or NaN."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="embedding",
    about="city-block distance to class prototypes; right only while every query lies above every prototype",
    cause="missing-op",
    stage="export",
    native=True,
)


class Prototypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.prototypes = nn.Parameter(
            torch.randn(4, 6, generator=torch.Generator().manual_seed(51))
        )

    def forward(self, query: Tensor) -> Tensor:
        return torch.cdist(query, self.prototypes, p=1.0)


class PrototypesByHand(Prototypes):
    def forward(self, query: Tensor) -> Tensor:
        return (query[:, None] - self.prototypes[None]).abs().sum(-1)


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = Prototypes().eval()
    example = (torch.rand(3, 6, generator=generator) + 6,)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes, dynamo=False)
    correct = export(PrototypesByHand().eval(), example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Pow", "Sub")]
    trigger = (torch.randn(3, 6, generator=generator),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
