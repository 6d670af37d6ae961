"""`.float()` and float32 constants in the forward: the module cannot simply be run in float64."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="conv", about="hard-coded float32: .float(), a float32 constant, torch.zeros with a dtype"
)


class HardCoded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.norm(self.conv(x.float())))
        total = torch.zeros(x.shape[0], 8, dtype=torch.float32, device=x.device)
        for k, weight in enumerate(torch.tensor([0.1, 0.7, 0.2], dtype=torch.float32)):
            total = total + weight * x[:, :, k::3].mean(-1)
        return (total / total.norm(dim=1, keepdim=True).clamp(min=1e-6)).float()


def build(folder: Path) -> Built:
    model = give_weights(HardCoded(), 118)
    return healthy(
        folder / "precision_hard_coded.onnx",
        model,
        (normal(3, 4, 24),),
        ({0: "batch"},),
        dynamo=True,
    )
