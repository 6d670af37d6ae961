"""A mean over sixty thousand values: torch adds in a tree, the runtime along the line, so its error is many times ours."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta

META = Meta(
    kind="operator",
    about="plain mean and sum of 60,000 positive values: a healthy ratio far above one",
)


class LongMean(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.mean(1), x.sum(1)


def build(folder: Path) -> Built:
    x = normal(2, 60000).abs()
    return healthy(
        folder / "numeric_long_mean.onnx",
        LongMean().eval(),
        (x,),
        ({0: "batch", 1: "length"},),
        dynamo=False,
    )
