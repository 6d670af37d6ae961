"""The PyTorch side of those base models that have one; `bench.fuzz.modules:conv_bn` is a subject for `onnxproof verify`."""

from typing import Any

import torch
from torch import nn

Made = tuple[nn.Module, tuple[Any, ...]]
VOCABULARY, WIDTH = 11, 8


class ConvNet(nn.Module):
    """Convolution, statistics, pooling, a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)
        self.norm.running_mean = torch.randn(4) * 0.1
        self.norm.running_var = torch.rand(4) + 0.5

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits."""
        hidden = torch.relu(self.norm(self.conv(image)))
        return self.head(nn.functional.max_pool2d(hidden, 2).mean((2, 3)))


class Block(nn.Module):
    """Embedding, one attention head, a layer norm, a projection to the vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.norm = nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits of each place."""
        hidden = self.embedding(ids)
        scores = self.query(hidden) @ self.key(hidden).transpose(1, 2) * WIDTH**-0.5
        hidden = self.norm(hidden + scores.softmax(-1) @ self.value(hidden))
        return self.out(hidden)


class Recurrent(nn.Module):
    """An LSTM that starts from a state and hands it back."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(4, 6)

    def forward(
        self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """The sequence of answers, and the state after it."""
        made, (hidden, cell) = self.cell(x, (h, c))
        return made, hidden, cell


class Several(nn.Module):
    """Outputs of several types."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Scores, the best class, which scores are positive."""
        scores = self.first(x).tanh()
        return scores, scores.argmax(-1), scores > 0


class Perceptron(nn.Module):
    """Two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.second(torch.relu(self.first(x)))


def _seeded(seed: int) -> torch.Generator:
    torch.manual_seed(seed)
    return torch.Generator().manual_seed(seed)


def conv_bn() -> Made:
    """A small image classifier."""
    random = _seeded(1)
    return ConvNet().eval(), (torch.randn(2, 3, 8, 8, generator=random),)


def transformer() -> Made:
    """A block with attention."""
    random = _seeded(2)
    return Block().eval(), (torch.randint(0, VOCABULARY, (2, 5), generator=random),)


def lstm() -> Made:
    """A recurrent layer with its state."""
    random = _seeded(3)
    state = tuple(torch.randn(1, 2, 6, generator=random) for _ in range(2))
    return Recurrent().eval(), (torch.randn(5, 2, 4, generator=random), *state)


def several() -> Made:
    """Three outputs of three types."""
    random = _seeded(4)
    return Several().eval(), (torch.randn(3, 6, generator=random),)


def perceptron() -> Made:
    """A plain network, whose file keeps its weights beside it."""
    random = _seeded(5)
    return Perceptron().eval(), (torch.randn(3, 6, generator=random),)


def half() -> Made:
    """The same in half precision."""
    module, (x,) = perceptron()
    return module.half(), (x.half(),)
