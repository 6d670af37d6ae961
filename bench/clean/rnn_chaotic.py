"""A vanilla RNN with a spectral radius above one: nearby states part exponentially, so one ulp becomes per cents."""

from pathlib import Path

import torch
from torch import nn

from bench.architectures import RecurrentTagger
from bench.clean._healthy import healthy, integers
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="rnn", about="chaotic tanh recurrence: rounding grows with every step")


def build(folder: Path) -> Built:
    model = give_weights(RecurrentTagger(nn.RNN, layers=1, bidirectional=False, hidden=64), 49)
    with torch.no_grad():
        model.recurrent.weight_hh_l0.mul_(2.0)
        model.recurrent.weight_ih_l0.mul_(0.1)
    axes = ({0: "batch", 1: "length"},)
    return healthy(folder / "rnn_chaotic.onnx", model, (integers(53, 2, 50),), axes, dynamo=False)
