"""A pointer network's copy step: attention weights scattered into a vocabulary by id, repeated ids adding up."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, integers, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="causal-lm",
    about="copy mechanism: scatter_add of probabilities, gather of states, log at the end",
)


class Pointer(nn.Module):
    def __init__(self, vocabulary: int = 30) -> None:
        super().__init__()
        self.words, self.mix, self.query = (
            nn.Linear(12, vocabulary),
            nn.Linear(12, 1),
            nn.Linear(12, 12),
        )

    def forward(self, state: Tensor, memory: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        weight = (memory @ self.query(state).unsqueeze(-1)).squeeze(-1).softmax(-1)
        copied = torch.zeros_like(self.words(state)).scatter_add(1, ids, weight)
        mix = self.mix(state).sigmoid()
        chance = mix * self.words(state).softmax(-1) + (1 - mix) * copied
        return torch.log(chance + 1e-6), chance.gather(1, ids)


def build(folder: Path) -> Built:
    inputs = (normal(3, 12), normal(3, 9, 12, seed=2), integers(30, 3, 9))
    axes = ({0: "batch"}, {0: "batch", 1: "length"}, {0: "batch", 1: "length"})
    return healthy(
        folder / "gather_scatter_pointer.onnx",
        give_weights(Pointer(), 132),
        inputs,
        axes,
        dynamo=True,
    )
