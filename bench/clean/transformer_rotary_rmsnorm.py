"""RoPE, RMSNorm and SwiGLU: sines of large positions and a reciprocal square root in each of four blocks."""

from pathlib import Path

from torch import Tensor, nn

from bench.architectures import RmsNorm, RotaryBlock
from bench.clean._healthy import healthy, integers
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="causal-lm", about="four rotary RMSNorm blocks, tied logits")


class RotaryLM(nn.Module):
    def __init__(self, vocabulary: int = 71, width: int = 32) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(RotaryBlock(width, 4) for _ in range(4))
        self.norm = RmsNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.tokens.weight.T


def build(folder: Path) -> Built:
    axes = ({0: "batch", 1: "length"},)
    return healthy(
        folder / "transformer_rotary_rmsnorm.onnx",
        give_weights(RotaryLM(), 37),
        (integers(71, 2, 40),),
        axes,
        dynamo=True,
    )
