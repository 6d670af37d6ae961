"""Two residual channels a thousand times the others, as large language models have them: LayerNorm hides the rest."""

from pathlib import Path

import torch
from torch import Tensor

from bench.architectures import TransformerStack
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="transformer", about="massive activations in two channels, twelve blocks")


class WithOutliers(TransformerStack):
    def __init__(self) -> None:
        super().__init__(12)
        self.register_buffer("outliers", torch.zeros(32))
        self.outliers[5], self.outliers[19] = 1500.0, -900.0

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + self.outliers)


def build(folder: Path) -> Built:
    model = give_weights(WithOutliers(), 35)
    axes = ({0: "batch", 1: "length"},)
    return healthy(
        folder / "transformer_outlier_features.onnx", model, (normal(2, 8, 32),), axes, dynamo=False
    )
