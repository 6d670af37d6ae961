"""Greedy ids beside the logits they come from: nearly tied words make the integer flip on rounding alone."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="causal-lm",
    about="argmax over pairs of nearly equal logits: an integer output with float noise",
)


class GreedyHead(nn.Module):
    def __init__(self, width: int = 256, vocabulary: int = 400) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, width)
        self.words = nn.Linear(width, vocabulary, bias=False)

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.words(torch.tanh(self.hidden(state)))
        return logits.argmax(-1), logits


def build(folder: Path) -> Built:
    model = give_weights(GreedyHead(), 43)
    with torch.no_grad():
        model.words.weight[1::2] = model.words.weight[0::2] + normal(200, 256, seed=4, scale=3e-8)
    return healthy(
        folder / "causal_lm_greedy.onnx", model, (normal(64, 256),), ({0: "batch"},), dynamo=False
    )
