"""scaled_dot_product_attention is exported with sqrt(scale) on both sides: a negative scale gives NaN everywhere."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="transformer",
    about="attention to the least similar keys by a negative scale; both exporters take the root of it",
    cause="precision",
    also=("nan-handling",),
    stage="export",
    native=True,
)


class Contrast(nn.Module):
    """Attends to what is unlike the query: the scale is -1 / sqrt(d)."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(query, key, value, scale=-(8**-0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(*self.project(x)[:, None].chunk(3, dim=-1))[:, 0]


class NegatedContrast(Contrast):
    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(-query, key, value, scale=8**-0.5)


def build(folder: Path) -> Built:
    model = give_weights(Contrast(), 38)
    other = NegatedContrast().eval()
    other.load_state_dict(model.state_dict())
    example = (torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1)),)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(other, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Mul")][:2]
    trigger = (torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(2)),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
