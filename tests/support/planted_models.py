"""Small models in which test_locate, test_causes, test_explain and test_repro plant their faults."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def seeded(module: nn.Module, seed: int = 0) -> nn.Module:
    """Weights of a trained model's size, BatchNorm statistics away from their defaults, eval mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            noise = torch.randn(tensor.shape, generator=generator)
            if name.endswith("running_var"):
                tensor.copy_(noise.abs() * 0.3 + 0.3)
            elif tensor.dim() >= 2:
                tensor.copy_(noise / max(1, tensor[0].numel()) ** 0.5)
            elif tensor.is_floating_point():
                tensor.copy_(noise * 0.2 + (1.0 if name.endswith("weight") else 0.0))
    return module.eval()


def normal(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def integers(low: int, high: int, *shape: int, seed: int = 1) -> Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.kept, self.head = (
            nn.Conv2d(3, 6, 3),
            nn.Conv2d(6, 6, 3),
            nn.BatchNorm2d(6),
            nn.Linear(6, 4),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.first(x))
        x = self.kept(F.hardtanh(self.second(x), -0.5, 0.7))
        return self.head(F.leaky_relu(x, 0.2).mean((2, 3)))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(16), nn.LayerNorm(16, eps=1e-6)
        self.qkv, self.out, self.up, self.down = (
            nn.Linear(16, 48),
            nn.Linear(16, 16),
            nn.Linear(16, 32),
            nn.Linear(32, 16),
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (
            self.qkv(self.before(x)).reshape(x.shape[0], -1, 2, 24).transpose(1, 2).chunk(3, -1)
        )
        bias = self.bias(mask)[:, None, None, :].to(x.dtype) * -1e4
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5 + bias, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.after(x * 0.1))))

    def bias(self, mask: Tensor) -> Tensor:
        return ~mask


class Unmasked(Encoder):
    """As an exporter that saw only full masks would leave it."""

    def bias(self, mask: Tensor) -> Tensor:
        return ~(torch.ones_like(mask) | mask)


class Inverted(Encoder):
    """True means hide here, and keep there."""

    def bias(self, mask: Tensor) -> Tensor:
        return mask


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(F.relu6(self.b(torch.tanh(self.a(x)) * 6)) + x)


class Limits(nn.Module):
    """A table of features: an age limit, a bucket, a ratio."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        adult = (x >= 1.0).to(x.dtype)
        return self.head(x - adult) + torch.round(x[:, :3] * 4)


class Lengths(nn.Module):
    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        places = torch.arange(x.shape[1])
        return (x * (places[None] < lengths[:, None])[..., None]).sum(1)


class Folded(nn.Module):
    """Square inner sizes, so that no shape check notices exchanged axes."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x).transpose(1, 2).tanh()


class Sums(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1) / x.shape[1]


class SumsTraced(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1) / int(x.shape[1])


class Flat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).cumsum(1) + x.shape[1]


class FlatTraced(Flat):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).cumsum(1) + int(x.shape[1])


class Peak(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x) / x.abs().max()


class PeakTraced(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x) / x.abs().max().item()


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.head(x) - x.mean())


class NormedTraced(Normed):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.head(x) - float(x.mean()))


class Alias(nn.Module):
    """A write through a view, which tracing does not see."""

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        y.transpose(0, 1)[0] = 9.0
        return y + 1


class Towers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(12, 8), nn.Linear(12, 8)

    def forward(self, query: Tensor, passage: Tensor) -> Tensor:
        return torch.tanh(self.left(query)) * torch.tanh(self.right(passage))


class Three(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(6, 6)

    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return self.mix(a) - 2 * b + torch.tanh(c)


class Span(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start, self.end = nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"start": self.start(x), "end": self.end(x)}


class DoubleQuantized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.fake_quantize_per_tensor_affine(self.body(x), 0.1, 0, -128, 127)
        return self.head(torch.fake_quantize_per_tensor_affine(h, 0.07, 10, -128, 127))


class QuantizedPool(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = torch.fake_quantize_per_tensor_affine(x, 0.0625, 3, -128, 127)
        return torch.fake_quantize_per_tensor_affine(F.avg_pool2d(x, 2), 0.0625, 3, -128, 127)


class BatchStatistics(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, torch.zeros(2), torch.ones(2), training=True)


class Scattered(nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x).scatter_add(1, index, x * 2) + x


class IntegerSum(nn.Module):
    def forward(self, keys: Tensor) -> Tensor:
        return (keys * (2**40 + 1)).sum(1)


class IntegerRemainder(nn.Module):
    def forward(self, keys: Tensor) -> Tensor:
        return torch.fmod(keys * (2**40 + 1), 1000)


class ImageResize(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return F.interpolate(image, size=(9, 11), mode="bilinear")


class FarNorm(nn.Module):
    """Values far from zero: a variance made in one pass loses its digits."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + 1000)


class Pooled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool1d(x, 2) * 2


class Choice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.round(self.head(x)).argmax(-1)


class Hashed(nn.Module):
    def forward(self, ids: Tensor) -> Tensor:
        return (ids * 2654435761) % 1000003


class Times(nn.Module):
    def forward(self, seconds: Tensor) -> Tensor:
        return (seconds * 1000 + 500) // 86400


@dataclass(frozen=True, kw_only=True)
class Model:
    module: nn.Module
    example: tuple[Any, ...]
    shapes: Any = ({0: "batch"},)


MASK = torch.tensor([[True] * 5, [True, True, True, False, False]])
TIME = ({0: "batch", 1: "time"}, {0: "batch", 1: "time"})
MODELS: dict[str, Callable[[], Model]] = {
    "conv": lambda: Model(module=seeded(ConvNet()), example=(normal(2, 3, 8, 8),)),
    "encoder": lambda: Model(
        module=seeded(Encoder()), example=(normal(2, 5, 16), MASK), shapes=TIME
    ),
    "unmasked": lambda: Model(
        module=seeded(Unmasked()), example=(normal(2, 5, 16), MASK), shapes=TIME
    ),
    "inverted": lambda: Model(
        module=seeded(Inverted()), example=(normal(2, 5, 16), MASK), shapes=TIME
    ),
    "mlp": lambda: Model(module=seeded(Mlp()), example=(normal(3, 8),)),
    "limits": lambda: Model(module=seeded(Limits()), example=(normal(3, 8),)),
    "lengths": lambda: Model(
        module=Lengths(),
        example=(normal(3, 6, 4), torch.tensor([2, 6, 4])),
        shapes=({0: "batch"}, {0: "batch"}),
    ),
    "folded": lambda: Model(module=seeded(Folded()), example=(normal(2, 6, 6),)),
    "sums": lambda: Model(
        module=Sums(), example=(normal(2, 5, 3),), shapes=({0: "batch", 1: "time"},)
    ),
    "sums-traced": lambda: Model(
        module=SumsTraced(), example=(normal(2, 5, 3),), shapes=({0: "batch", 1: "time"},)
    ),
    "flat": lambda: Model(
        module=seeded(Flat()), example=(normal(2, 5, 3),), shapes=({0: "batch", 1: "time"},)
    ),
    "flat-traced": lambda: Model(
        module=seeded(FlatTraced()), example=(normal(2, 5, 3),), shapes=({0: "batch", 1: "time"},)
    ),
    "peak": lambda: Model(module=Peak(), example=(normal(3, 6),)),
    "peak-traced": lambda: Model(module=PeakTraced(), example=(normal(3, 6),)),
    "normed": lambda: Model(module=seeded(Normed()), example=(normal(3, 6),)),
    "normed-traced": lambda: Model(module=seeded(NormedTraced()), example=(normal(3, 6),)),
    "alias": lambda: Model(module=Alias(), example=(normal(4, 5),)),
    "towers": lambda: Model(
        module=seeded(Towers()),
        example=(normal(3, 12), normal(3, 12, seed=6)),
        shapes=({0: "batch"}, {0: "batch"}),
    ),
    "three": lambda: Model(
        module=seeded(Three()),
        example=(normal(3, 6), normal(3, 6, seed=6), normal(3, 6, seed=7)),
        shapes=({0: "batch"},) * 3,
    ),
    "span": lambda: Model(module=seeded(Span()), example=(normal(3, 6),)),
    "double-quantized": lambda: Model(module=seeded(DoubleQuantized()), example=(normal(2, 16),)),
    "quantized-pool": lambda: Model(
        module=QuantizedPool(), example=(torch.full((1, 2, 8, 8), 0.5),)
    ),
    "batch-statistics": lambda: Model(
        module=BatchStatistics(), example=(normal(3, 2, 4) * 3 + 2,), shapes=None
    ),
    "scattered": lambda: Model(
        module=Scattered(),
        example=(normal(3, 6), torch.tensor([[0, 0, 1, 1, 2, 5]] * 3)),
        shapes=({0: "batch"}, {0: "batch"}),
    ),
    "integer-sum": lambda: Model(module=IntegerSum(), example=(integers(0, 2**20, 2, 3),)),
    "integer-remainder": lambda: Model(module=IntegerRemainder(), example=(integers(0, 2**20, 6),)),
    "image": lambda: Model(
        module=ImageResize(), example=(integers(0, 256, 1, 3, 6, 6).to(torch.uint8),)
    ),
    "far-group-norm": lambda: Model(
        module=seeded(FarNorm(nn.GroupNorm(2, 4))), example=(normal(2, 4, 16),)
    ),
    "pooled": lambda: Model(module=Pooled(), example=(normal(2, 3, 8),)),
    "choice": lambda: Model(module=seeded(Choice()), example=(normal(4, 6),)),
    "hashed": lambda: Model(module=Hashed(), example=(integers(0, 50000, 4),)),
    "times": lambda: Model(module=Times(), example=(integers(10**9, 2 * 10**9, 4),)),
}
