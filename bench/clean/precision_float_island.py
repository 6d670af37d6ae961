"""A half-precision net with a float32 island for its softmax and norm, as mixed-precision code writes it."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="transformer", about="float16 weights, softmax and mean in float32")


class Island(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        weight = (q.float() @ k.float().transpose(1, 2) / 4).softmax(-1).to(v.dtype)
        return self.out(weight @ v).float().mean(1)


def build(folder: Path) -> Built:
    model = give_weights(Island(), 119).half()
    axes = ({0: "batch", 1: "length"},)
    return healthy(
        folder / "precision_float_island.onnx", model, (normal(2, 7, 16).half(),), axes, dynamo=True
    )
