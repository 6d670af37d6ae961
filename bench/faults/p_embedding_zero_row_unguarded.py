"""L2 normalisation lost its epsilon, so an all-zero vector (an empty text) becomes NaN instead of zero."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn
from torch.nn import functional

from bench.corpus import Built, Meta, edit, export, give_weights, nodes, rewire

META = Meta(
    kind="embedding",
    about="the lower bound of F.normalize was removed",
    cause="clipping",
    stage="export",
)


class Projector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 8, bias=False)

    def forward(self, vectors: Tensor) -> Tensor:
        return functional.normalize(self.project(vectors), dim=-1)


def build(folder: Path) -> Built:
    torch.manual_seed(91)
    model = give_weights(Projector(), 91)
    vectors = torch.randn(3, 16)
    shapes = ({0: "batch"},)
    correct = export(model, (vectors,), folder / "correct.onnx", shapes)

    def unguard(graph: GraphProto) -> list[str]:
        guard = nodes(graph, "Clip")[0]
        rewire(graph, guard.output[0], guard.input[0])
        graph.node.remove(guard)
        return [nodes(graph, "Div")[0].name, nodes(graph, "ReduceL2")[0].name]

    guilty = edit(correct, folder / "faulty.onnx", unguard)
    empty = vectors.clone()
    empty[1] = 0
    return Built(
        model=model,
        example_inputs=(vectors,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(empty,),
    )
