"""Total probability and the entropy of a sure prediction: 1 and 0 up to the last bits, which differ between runtimes."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="operator",
    about="sum of a softmax, its complement of the top class, and the entropy of a near one-hot",
)


class Mass(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Linear(8, 20)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scores = 12 * self.logits(x)
        chance, log_chance = scores.softmax(-1), scores.log_softmax(-1)
        return chance.sum(-1), 1 - chance.amax(-1), -(chance * log_chance).sum(-1)


def build(folder: Path) -> Built:
    return healthy(
        folder / "numeric_probability_mass.onnx",
        give_weights(Mass(), 125),
        (normal(6, 8, scale=2),),
        ({0: "batch"},),
        dynamo=True,
    )
