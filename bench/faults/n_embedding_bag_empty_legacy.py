"""EmbeddingBag(mode='max') of the legacy exporter: an empty bag is the maximum of nothing, -inf; torch gives 0."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="embedding",
    about="max-pooled bag of category embeddings; a user without categories gets -inf",
    cause="nan-handling",
    stage="export",
    native=True,
)


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(20, 6, mode="max")

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        return self.bag(ids, offsets)


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = give_weights(Bag(), 34)
    example = (torch.randint(0, 20, (9,), generator=generator), torch.tensor([0, 3, 7]))
    shapes = None
    faulty = export(model, example, folder / "faulty.onnx", shapes, dynamo=False)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Loop")]
    trigger = (torch.randint(0, 20, (9,), generator=generator), torch.tensor([0, 4, 4]))
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=None,
        guilty=guilty,  # dynamo's file is wrong for offsets out of order
        trigger=trigger,
    )
