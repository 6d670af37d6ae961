"""The legacy exporter drops `threshold` of softplus: torch is exactly linear above it, the graph never is."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="operator",
    about="positive scale head with Softplus(beta=5, threshold=1); the legacy exporter loses the threshold",
    cause="attribute",
    stage="export",
    native=True,
)


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.positive = nn.Softplus(beta=5.0, threshold=1.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.positive(self.linear(x))


def build(folder: Path) -> Built:
    model = give_weights(Scale(), 12)
    example = (torch.randn(3, 6, generator=torch.Generator().manual_seed(1)) * 0.01,)
    with torch.no_grad():
        model.linear.bias.fill_(-0.3)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes, dynamo=False)
    correct = export(model, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Softplus")]
    trigger = (torch.randn(3, 6, generator=torch.Generator().manual_seed(2)),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
