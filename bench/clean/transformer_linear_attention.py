"""Linear attention: running sums over the sequence, divided by a running sum. torch adds them in double, the runtime does not."""

from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="transformer", about="causal linear attention by cumulative sums")


class LinearAttention(nn.Module):
    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.q, self.k, self.v = (
            nn.Linear(width, width),
            nn.Linear(width, width),
            nn.Linear(width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k = functional.elu(self.q(x)) + 1, functional.elu(self.k(x)) + 1
        outer = (k.unsqueeze(-1) * self.v(x).unsqueeze(-2)).cumsum(1)
        return (q.unsqueeze(-2) @ outer).squeeze(-2) / (q * k.cumsum(1)).sum(-1, keepdim=True)


def build(folder: Path) -> Built:
    axes = ({0: "batch", 1: "length"},)
    return healthy(
        folder / "transformer_linear_attention.onnx",
        give_weights(LinearAttention(), 39),
        (normal(2, 200, 12),),
        axes,
        dynamo=False,
    )
