"""A running total became exclusive of the current day, as another framework's cumulative sum is by default."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(kind="tabular", about="CumSum exclusive=1", cause="attribute", stage="export")


class Balance(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 12), nn.ELU(), nn.Linear(12, 1))

    def forward(self, flows: Tensor) -> Tensor:
        total = flows.cumsum(1)
        return self.net(torch.stack([flows, total], -1))[..., 0].amax(1)


def build(folder: Path) -> Built:
    torch.manual_seed(77)
    model = give_weights(Balance(), 77)
    flows = torch.randn(2, 6)
    shapes = ({0: "batch", 1: "days"},)
    correct = export(model, (flows,), folder / "correct.onnx", shapes, dynamo=False)

    def exclude(graph: GraphProto) -> list[str]:
        total = nodes(graph, "CumSum")[0]
        set_attributes(total, exclusive=1)
        return [total.name]

    guilty = edit(correct, folder / "faulty.onnx", exclude)
    return Built(
        model=model,
        example_inputs=(flows,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(3, 9),),
    )
