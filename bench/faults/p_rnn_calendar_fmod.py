"""Days before the epoch have negative numbers; the weekday by C's remainder is negative too, by Python's it is not."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(
    kind="rnn",
    about="Mod fmod=1 on integers: the sign of negative days is kept",
    cause="attribute",
    stage="export",
)


class Seasonal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(3, 10, batch_first=True), nn.Linear(10, 1)

    def forward(self, days: Tensor, sales: Tensor) -> Tensor:
        weekday = days % 7
        x = torch.stack([weekday / 6, (weekday >= 5).float(), sales], -1)
        return self.head(self.gru(x)[0])[..., 0]


def build(folder: Path) -> Built:
    torch.manual_seed(108)
    model = give_weights(Seasonal(), 108)
    days, sales = torch.arange(100, 106)[None].expand(2, -1).clone(), torch.randn(2, 6)
    shapes = ({0: "batch", 1: "days"}, {0: "batch", 1: "days"})
    correct = export(model, (days, sales), folder / "correct.onnx", shapes, dynamo=False)

    def keep_sign(graph: GraphProto) -> list[str]:
        remainder = nodes(graph, "Mod")[0]
        set_attributes(remainder, fmod=1)
        return [remainder.name]

    guilty = edit(correct, folder / "faulty.onnx", keep_sign)
    return Built(
        model=model,
        example_inputs=(days, sales),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.arange(-3, 3)[None].expand(2, -1).clone(), sales),
    )
