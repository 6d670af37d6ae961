"""Categories and numbers, BatchNorm between linear layers."""

from pathlib import Path

import torch

from bench.architectures import Tabular
from bench.clean._healthy import healthy, integers, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="tabular", about="three category embeddings of different sizes beside six numbers")


def build(folder: Path) -> Built:
    categories = torch.stack([integers(size, 5, seed=size) for size in (7, 12, 31)], 1)
    inputs = (categories, normal(5, 6))
    axes = ({0: "batch"}, {0: "batch"})
    return healthy(
        folder / "tabular_embeddings.onnx", give_weights(Tabular(), 65), inputs, axes, dynamo=False
    )
