"""No floats at all: bucketing, hashing by remainder, one-hot, counts. Any difference whatsoever would be wrong."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.clean._healthy import healthy, integers
from bench.corpus import Built, Meta

META = Meta(kind="tabular", about="int64 in, int64 and bool out, values beyond 2^31")


class Hashing(nn.Module):
    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mixed = ids * 2654435761 + 97
        bucket = torch.remainder(mixed, 31)
        counts = functional.one_hot(bucket, 31).sum(1)
        return mixed, counts, (counts > 1).any(-1)


def build(folder: Path) -> Built:
    axes = ({0: "batch", 1: "length"},)
    return healthy(
        folder / "discrete_integer_features.onnx",
        Hashing().eval(),
        (integers(1000, 3, 8),),
        axes,
        dynamo=True,
    )
