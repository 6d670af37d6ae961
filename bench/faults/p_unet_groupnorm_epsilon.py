"""A GroupNorm built with epsilon 1e-6 (as diffusion UNets are) carries the default 1e-5 after a rewrite: very small."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import nn
from torch.nn import functional

from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(
    kind="unet",
    about="GroupNorm epsilon 1e-6 became 1e-5; within atol 1e-4, rtol 1e-3 on ordinary data",
    cause="attribute",
    stage="export",
)


class ResBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.inner = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.first, self.second = nn.GroupNorm(4, 16, eps=1e-6), nn.GroupNorm(4, 16, eps=1e-6)
        self.out = nn.Conv2d(16, 3, 1)

    def forward(self, latent: torch.Tensor) -> torch.Tensor:
        latent = self.stem(latent)
        latent = latent + self.inner(functional.silu(self.first(latent)))
        return self.out(functional.silu(self.second(latent)))


def build(folder: Path) -> Built:
    torch.manual_seed(6)
    model = give_weights(ResBlock(), 6)
    latent = torch.randn(1, 3, 16, 16)
    shapes = ({0: "batch", 2: "height", 3: "width"},)
    correct = export(model, (latent,), folder / "correct.onnx", shapes, dynamo=False)

    def default(graph: GraphProto) -> list[str]:
        norm = nodes(graph, "InstanceNormalization")[0]
        set_attributes(norm, epsilon=1e-5)
        return [norm.name]

    guilty = edit(correct, folder / "faulty.onnx", default)
    return Built(
        model=model,
        example_inputs=(latent,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 3, 16, 16) * 0.3,),
    )
