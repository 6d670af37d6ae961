"""A bidirectional LSTM tagger over any length."""

from pathlib import Path

from torch import nn

from bench.architectures import RecurrentTagger
from bench.clean._healthy import healthy, integers
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="rnn", about="two-layer bidirectional LSTM, a label a token")


def build(folder: Path) -> Built:
    model = give_weights(RecurrentTagger(nn.LSTM), 47)
    axes = ({0: "batch", 1: "length"},)
    return healthy(
        folder / "rnn_lstm_bidirectional.onnx", model, (integers(53, 2, 11),), axes, dynamo=False
    )
