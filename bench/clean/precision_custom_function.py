"""A custom autograd.Function in the forward (swish with its own backward): tracing must look through it."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="conv", about="memory-saving swish as an autograd.Function")


class SwishFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        gate = torch.sigmoid(x)
        return gradient * gate * (1 + x * (1 - gate))


class Swish(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return SwishFunction.apply(x)


def build(folder: Path) -> Built:
    model = nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1),
        Swish(),
        nn.Conv2d(12, 12, 3, padding=1),
        Swish(),
        nn.Conv2d(12, 4, 1),
    )
    axes = ({0: "batch", 2: "height", 3: "width"},)
    return healthy(
        folder / "precision_custom_function.onnx",
        give_weights(model, 120),
        (normal(2, 3, 12, 14),),
        axes,
        dynamo=True,
    )
