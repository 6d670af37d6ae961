"""A sequence's log-likelihood: log-softmax, gather, a sum over tokens. One number a text, mostly cancelled away by a baseline."""

from pathlib import Path

from torch import Tensor, nn

from bench.architectures import RotaryBlock
from bench.clean._healthy import healthy, integers
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="causal-lm", about="summed token log-probabilities minus a uniform baseline")


class Scorer(nn.Module):
    def __init__(self, vocabulary: int = 50, width: int = 24) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.block = RotaryBlock(width, 2)
        self.words = nn.Linear(width, vocabulary)
        self.baseline = 3.912023005428146

    def forward(self, ids: Tensor) -> Tensor:
        scores = self.words(self.block(self.tokens(ids[:, :-1]))).log_softmax(-1)
        chosen = scores.gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)
        return (chosen + self.baseline).sum(1)


def build(folder: Path) -> Built:
    axes = ({0: "batch", 1: "length"},)
    return healthy(
        folder / "causal_lm_log_likelihood.onnx",
        give_weights(Scorer(), 44),
        (integers(50, 4, 30),),
        axes,
        dynamo=False,
    )
