"""`softmax(dtype=float64)` means: convert, then compute. Both exporters compute in float32 and convert the result."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="operator",
    about="probabilities of rare events in float64; the float32 softmax underflows to 0 before the cast",
    cause="precision",
    stage="export",
    native=True,
)


class Probability(nn.Module):
    def forward(self, logits: Tensor) -> Tensor:
        return torch.log(logits.softmax(-1, dtype=torch.float64))


class ConvertedProbability(nn.Module):
    def forward(self, logits: Tensor) -> Tensor:
        return torch.log(logits.double().softmax(-1))


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = Probability().eval()
    example = (torch.randn(2, 6, generator=generator),)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(ConvertedProbability().eval(), example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Softmax", "Cast")]
    trigger = (torch.tensor([[0.0, -150.0, -30.0, -200.0, 1.0, -120.0]]),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
