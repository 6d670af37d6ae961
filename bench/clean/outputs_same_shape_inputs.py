"""Three inputs of one shape and three outputs of one shape: only their order or names tell them apart."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="embedding",
    about="anchor, positive, negative in; three projections and a triplet margin out",
)


class Triplet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 24), nn.LeakyReLU(), nn.Linear(24, 12))

    def forward(
        self, anchor: Tensor, positive: Tensor, negative: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        a, p, n = self.net(anchor), self.net(positive), self.net(negative)
        margin = ((a - p).square().sum(-1) - (a - n).square().sum(-1) + 1).clamp(min=0)
        return a, p, n, margin


def build(folder: Path) -> Built:
    inputs = (normal(4, 12), normal(4, 12, seed=2), normal(4, 12, seed=3))
    names = {
        "input_names": ["anchor", "positive", "negative"],
        "output_names": ["a", "p", "n", "margin"],
    }
    axes = ({0: "batch"}, {0: "batch"}, {0: "batch"})
    return healthy(
        folder / "outputs_same_shape_inputs.onnx",
        give_weights(Triplet(), 114),
        inputs,
        axes,
        dynamo=False,
        **names,
    )
