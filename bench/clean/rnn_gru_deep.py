"""Four GRU layers over sixty steps: the runtime's polynomial tanh and sigmoid, fed back two hundred times."""

from pathlib import Path

from torch import nn

from bench.architectures import RecurrentTagger
from bench.clean._healthy import healthy, integers
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="rnn", about="four stacked GRU layers, sixty steps")


def build(folder: Path) -> Built:
    model = give_weights(RecurrentTagger(nn.GRU, layers=4, bidirectional=False), 48)
    axes = ({0: "batch", 1: "length"},)
    return healthy(folder / "rnn_gru_deep.onnx", model, (integers(53, 2, 60),), axes, dynamo=False)
