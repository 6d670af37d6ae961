"""Models that prepare their own input, on several architectures: what test_preprocessing exports from one and verifies against another."""

from collections.abc import Callable
from typing import Any

import torch
from support.planted_models import seeded
from torch import Tensor, nn

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
Prepare = Callable[[Tensor], Tensor]


def bare(x: Tensor) -> Tensor:
    return x


def by_255(x: Tensor) -> Tensor:
    return x / 255


def times_255(x: Tensor) -> Tensor:
    return x * 255


def bgr(x: Tensor) -> Tensor:
    return x[:, [2, 1, 0]]


def normed(mean: tuple[float, ...], spread: tuple[float, ...], *, by: float = 1.0) -> Prepare:
    def prepare(x: Tensor) -> Tensor:
        return (x / by - torch.tensor(mean, dtype=x.dtype).view(1, 3, 1, 1)) / torch.tensor(
            spread, dtype=x.dtype
        ).view(1, 3, 1, 1)

    return prepare


def channels_last(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


def crop(top: int, left: int, size: int) -> Prepare:
    return lambda x: x[:, :, top : top + size, left : left + size]


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second, self.head = (
            nn.Conv2d(3, 6, 3, padding=1),
            nn.BatchNorm2d(6),
            nn.Conv2d(6, 8, 3, 2),
            nn.Linear(8, 4),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.second(torch.relu(self.norm(self.first(x))))).mean((2, 3)))


class Patches(nn.Module):
    """A small vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm, self.mix, self.head = (
            nn.Conv2d(3, 16, 4, 4),
            nn.LayerNorm(16),
            nn.Linear(16, 16),
            nn.Linear(16, 5),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        scores = self.norm(x) @ x.transpose(1, 2) / 4
        return self.head((x + self.mix(torch.softmax(scores, -1) @ x)).mean(1))


class Flat(nn.Module):
    """Pixels in a row, as for digits."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(3 * 8 * 8, 24), nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.tanh(self.up(x.flatten(1) / 8)))


class Sound(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = (
            nn.Conv1d(1, 8, 9, 4),
            nn.Conv1d(8, 8, 3, 2),
            nn.Linear(8, 4),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.second(torch.tanh(self.first(x[:, None])))).mean(2))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.mix, self.head = nn.Embedding(40, 8), nn.Conv1d(8, 8, 3), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.mix(self.table(x).transpose(1, 2))).amax(2))


class Prepared(nn.Module):
    def __init__(self, net: nn.Module, prepare: Prepare) -> None:
        super().__init__()
        self.net, self.prepare = net, prepare

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.prepare(x))


def prepared(kind: type[nn.Module], prepare: Prepare) -> nn.Module:
    """The same weights each time, behind any preparation."""
    return Prepared(seeded(kind(), 3), prepare).eval()


def pixels(*shape: int, top: float = 255.0) -> Any:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(9)) * top
