"""`scatter_reduce(reduce='mean')` has no ONNX counterpart: the dynamo exporter writes a plain scatter, so the last value wins."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="graph",
    about="mean aggregation of neighbours in a graph network; the exported graph keeps one neighbour",
    cause="scatter",
    stage="export",
    native=True,
)


class MeanAggregate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Linear(4, 4)
        self.update = nn.Linear(8, 3)

    def gather(self, x: Tensor, message: Tensor, target: Tensor) -> Tensor:
        index = target[:, None].expand_as(message)
        return torch.zeros_like(x).scatter_reduce(
            0, index, message, reduce="mean", include_self=False
        )

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        return self.update(torch.cat([x, self.gather(x, self.message(x[source]), target)], 1))


class SumCountAggregate(MeanAggregate):
    def gather(self, x: Tensor, message: Tensor, target: Tensor) -> Tensor:
        index = target[:, None].expand_as(message)
        total = torch.zeros_like(x).scatter_add(0, index, message)
        return total / torch.zeros_like(x).scatter_add(0, index, torch.ones_like(message)).clamp(
            min=1
        )


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = give_weights(MeanAggregate(), 26)
    other = SumCountAggregate().eval()
    other.load_state_dict(model.state_dict())
    example = (
        torch.randn(5, 4, generator=generator),
        torch.tensor([0, 1, 2, 3]),
        torch.tensor([1, 2, 3, 4]),
    )
    shapes = None
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(other, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "ScatterElements")][-1:]
    trigger = (
        torch.randn(5, 4, generator=generator),
        torch.tensor([0, 1, 2, 3]),
        torch.tensor([4, 4, 4, 0]),
    )
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
