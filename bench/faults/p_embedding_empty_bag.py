"""The guard against an empty bag (divide by at least one) was removed as redundant: a bag of no words becomes NaN."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes, rewire

META = Meta(
    kind="embedding",
    about="max(count, 1) removed from a mean; only empty bags differ",
    cause="clipping",
    stage="export",
    domain="empty",
)


class MeanBag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(30, 8), nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        vectors = self.words(ids)
        count = torch.ones_like(ids).sum(1, keepdim=True).clamp(min=1)
        return self.head(vectors.sum(1) / count)


def build(folder: Path) -> Built:
    torch.manual_seed(95)
    model = give_weights(MeanBag(), 95)
    ids = torch.randint(0, 30, (2, 5))
    shapes = ({0: "batch", 1: "words"},)
    correct = export(model, (ids,), folder / "correct.onnx", shapes, dynamo=False)

    def unguard(graph: GraphProto) -> list[str]:
        guard = nodes(graph, "Clip", "Max")[0]
        rewire(graph, guard.output[0], guard.input[0])
        graph.node.remove(guard)
        return [nodes(graph, "Div")[0].name]

    guilty = edit(correct, folder / "faulty.onnx", unguard)
    return Built(
        model=model,
        example_inputs=(ids,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.zeros(2, 0, dtype=torch.int64),),
    )
