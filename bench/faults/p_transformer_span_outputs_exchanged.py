"""A question-answering export names its outputs (end, start): reading by position or by name, one gets the other."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn

from bench.architectures import TransformerStack
from bench.corpus import Built, Meta, edit, export, give_weights

META = Meta(
    kind="transformer",
    about="start and end logits are exchanged",
    cause="output-order",
    stage="export",
)


class Span(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stack, self.span = TransformerStack(1), nn.Linear(32, 2)

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        start, end = self.span(self.stack(features)).unbind(-1)
        return {"start": start, "end": end}


def build(folder: Path) -> Built:
    torch.manual_seed(101)
    model = give_weights(Span(), 101)
    features = torch.randn(2, 6, 32)
    shapes = ({0: "batch", 1: "length"},)
    correct = export(
        model, (features,), folder / "correct.onnx", shapes, output_names=("start", "end")
    )

    def exchange(graph: GraphProto) -> list[str]:
        other = {"start": "end", "end": "start"}
        makers = [node for node in graph.node if node.output[0] in other]
        for node in makers:
            node.output[0] = other[node.output[0]]
        return [node.name for node in makers]

    guilty = edit(correct, folder / "faulty.onnx", exchange)
    return Built(
        model=model,
        example_inputs=(features,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(1, 9, 32),),
    )
