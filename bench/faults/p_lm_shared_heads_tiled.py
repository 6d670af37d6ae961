"""Grouped-query attention repeats each key head for its group; tiling the whole list gives most groups another's keys."""

from pathlib import Path

import torch
from onnx import load
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="causal-lm",
    about="key and value heads are tiled (0 1 0 1) instead of repeated (0 0 1 1)",
    cause="axis-order",
    stage="export",
)


class GroupedAttention(nn.Module):
    def __init__(self, tiled: bool = False, width: int = 24) -> None:
        super().__init__()
        self.tiled = tiled
        self.q, self.kv, self.out = (
            nn.Linear(width, width),
            nn.Linear(width, width),
            nn.Linear(width, width),
        )

    def share(self, x: Tensor) -> Tensor:
        batch, heads, length, size = x.shape
        if self.tiled:
            return (
                x[:, None]
                .expand(batch, 2, heads, length, size)
                .reshape(batch, 2 * heads, length, size)
            )
        return (
            x[:, :, None]
            .expand(batch, heads, 2, length, size)
            .reshape(batch, 2 * heads, length, size)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, 4, 6).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, 2, 2, 6).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = (q @ self.share(k).transpose(-2, -1) * 6**-0.5).softmax(-1) @ self.share(v)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


def build(folder: Path) -> Built:
    torch.manual_seed(39)
    model, wrong = (
        give_weights(GroupedAttention(), 39),
        give_weights(GroupedAttention(tiled=True), 39),
    )
    x = torch.randn(1, 5, 24)
    shapes = ({0: "batch", 1: "length"},)
    correct = export(model, (x,), folder / "correct.onnx", shapes, dynamo=False)
    faulty = export(wrong, (x,), folder / "faulty.onnx", shapes, dynamo=False)
    guilty = [node.name for node in nodes(load(faulty).graph, "Expand")]
    return Built(
        model=model,
        example_inputs=(x,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=faulty,
        guilty=guilty,
        trigger=(torch.randn(2, 8, 24),),
    )
