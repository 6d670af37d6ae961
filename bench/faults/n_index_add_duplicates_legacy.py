"""`index_add` of the legacy exporter keeps one of the rows that share an index."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="graph",
    about="sum of node features per graph by index_add; of the nodes of one graph a single one counts",
    cause="scatter",
    stage="export",
    native=True,
)


class Readout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor, graph: Tensor) -> Tensor:
        return self.head(torch.zeros(6, 4, dtype=x.dtype).index_add(0, graph, self.message(x)))


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = give_weights(Readout(), 39)
    example = (torch.randn(5, 4, generator=generator), torch.tensor([0, 1, 2, 3, 5]))
    shapes = None
    faulty = export(model, example, folder / "faulty.onnx", shapes, dynamo=False)
    correct = export(model, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "ScatterElements", "ScatterND")]
    trigger = (torch.randn(5, 4, generator=generator), torch.tensor([0, 0, 0, 3, 3]))
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
