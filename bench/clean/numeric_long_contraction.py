"""A dot product over sixteen thousand terms that nearly cancel: blocked sums differ from kernel to kernel."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta

META = Meta(
    kind="operator",
    about="orthogonalised long vectors: the true answer is near zero, the noise is not",
)


class LongContraction(nn.Module):
    def __init__(self, length: int = 16384) -> None:
        super().__init__()
        self.register_buffer(
            "directions", torch.linalg.qr(normal(length, 8, seed=9, scale=1.0)).Q.T.contiguous()
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        parts = x @ self.directions.T
        rest = x - parts @ self.directions
        return parts, rest @ self.directions.T


def build(folder: Path) -> Built:
    model = LongContraction().eval()
    return healthy(
        folder / "numeric_long_contraction.onnx",
        model,
        (normal(2, 16384),),
        ({0: "batch"},),
        dynamo=True,
    )
