"""Sums of squares are kept in float64 for prices with a large offset; a runtime without doubles was served by casting them."""

from pathlib import Path

import torch
from onnx import GraphProto, TensorProto, helper
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes, rewire

META = Meta(
    kind="tabular",
    about="E[x^2] - E[x]^2 loses its double precision; shows when the mean is large",
    cause="precision",
    stage="export",
)


class Volatility(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 3)

    def forward(self, prices: Tensor) -> Tensor:
        wide = prices.double()
        mean, square = wide.mean(1), (wide * wide).mean(1)
        spread = (square - mean * mean).clamp(min=0).sqrt()
        return self.head(torch.stack([spread, (spread + 1).log()], 1).float())


def build(folder: Path) -> Built:
    torch.manual_seed(75)
    model = give_weights(Volatility(), 75)
    prices = torch.randn(2, 16)
    shapes = ({0: "batch", 1: "days"},)
    correct = export(model, (prices,), folder / "correct.onnx", shapes)

    def narrow(graph: GraphProto) -> list[str]:
        square = nodes(graph, "ReduceMean")[1]
        rewire(graph, square.output[0], "square_again_double")
        down = helper.make_node(
            "Cast",
            [square.output[0]],
            ["square_single"],
            name="square_to_single",
            to=TensorProto.FLOAT,
        )
        up = helper.make_node(
            "Cast",
            ["square_single"],
            ["square_again_double"],
            name="square_to_double",
            to=TensorProto.DOUBLE,
        )
        for node in (up, down):
            graph.node.insert(list(graph.node).index(square) + 1, node)
        return [down.name, up.name]

    guilty = edit(correct, folder / "faulty.onnx", narrow)
    return Built(
        model=model,
        example_inputs=(prices,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 16) + 3000,),
    )
