"""Bags of ids summed per example, through `embedding_bag` with a fixed number of ids."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, integers
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="tabular", about="mean of embeddings a row and a linear head")


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(40, 16, mode="mean")
        self.head = nn.Linear(16, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.bag(ids))


def build(folder: Path) -> Built:
    return healthy(
        folder / "tabular_embedding_bag.onnx",
        give_weights(Bags(), 68),
        (integers(40, 3, 6),),
        dynamo=False,
    )
