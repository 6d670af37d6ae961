"""An LSTM that takes and returns its state: a nested tuple in, a nested tuple out, hidden and cell of one shape."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="rnn", about="streaming LSTM with explicit hidden and cell state")


class Streaming(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(8, 16, num_layers=2)
        self.head = nn.Linear(16, 3)

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        out, state = self.recurrent(x, state)
        return self.head(out), state


def build(folder: Path) -> Built:
    inputs = (normal(6, 2, 8), (normal(2, 2, 16, seed=2), normal(2, 2, 16, seed=3)))
    axes = ({1: "batch"}, ({1: "batch"}, {1: "batch"}))
    return healthy(
        folder / "rnn_lstm_states.onnx", give_weights(Streaming(), 50), inputs, axes, dynamo=True
    )
