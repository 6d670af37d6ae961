"""Row zero of a bag of words should be zero (padding_idx), but the file holds its initial values: unpadded bags are identical."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn

from bench.corpus import (
    Built,
    Meta,
    edit,
    export,
    give_weights,
    nodes,
    read_constant,
    write_constant,
)

META = Meta(
    kind="embedding",
    about="the padding row of an embedding table is not zero",
    cause="weights",
    stage="export",
)


class BagOfWords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(40, 12, padding_idx=0), nn.Linear(12, 4)

    def forward(self, ids: Tensor) -> Tensor:
        count = (ids != 0).sum(1, keepdim=True).clamp(min=1)
        return self.head(self.words(ids).sum(1) / count)


def build(folder: Path) -> Built:
    torch.manual_seed(92)
    model = give_weights(BagOfWords(), 92)
    with torch.no_grad():
        model.words.weight[0] = 0
    ids = torch.randint(1, 40, (2, 6))
    shapes = ({0: "batch", 1: "words"},)
    correct = export(model, (ids,), folder / "correct.onnx", shapes, dynamo=False)

    def fill(graph: GraphProto) -> list[str]:
        lookup = nodes(graph, "Gather")[0]
        table = read_constant(graph, lookup.input[0])
        table[0] = table[7] * 0.5
        write_constant(graph, lookup.input[0], table)
        return [lookup.name]

    guilty = edit(correct, folder / "faulty.onnx", fill)
    padded = ids.clone()
    padded[0, 4:] = 0
    return Built(
        model=model,
        example_inputs=(ids,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(padded,),
    )
