"""A half-precision GRU cell unrolled by hand over any batch: rounding of 1e-3 fed back at each step."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="rnn", about="float16 gated recurrence, sixteen steps")


class GatedRecurrence(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.gates, self.new = nn.Linear(2 * width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros_like(x[:, 0])
        for k in range(16):
            update, reset = self.gates(torch.cat([x[:, k], state], 1)).sigmoid().chunk(2, 1)
            fresh = torch.tanh(self.new(torch.cat([x[:, k], reset * state], 1)))
            state = update * state + (1 - update) * fresh
        return state


def build(folder: Path) -> Built:
    model = give_weights(GatedRecurrence(), 131).half()
    return healthy(
        folder / "rnn_gru_half.onnx",
        model,
        (normal(3, 16, 16).half(),),
        ({0: "batch"},),
        dynamo=False,
    )
