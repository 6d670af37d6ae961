"""The file of another module than the reference: each differs in one place, and the node and the cause are named."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

import onnxproof

DYNAMIC = torch.export.Dim.DYNAMIC
Function = Callable[[torch.Tensor], torch.Tensor]


class BetweenLinears(nn.Module):
    """A function between two linear layers with fixed weights."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(8, 8)
        self.last = nn.Linear(8, 4)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.function(self.first(x)))


class CausalAttention(nn.Module):
    """Two heads that see what is not later than `ahead` places from them, less with distance."""

    def __init__(self, *, ahead: int = 0, slopes: tuple[float, float] = (0.5, 0.25)) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.projection = nn.Linear(16, 48)
        self.output = nn.Linear(16, 6)
        self.ahead = ahead
        self.slopes = slopes

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        projected = self.projection(x).reshape(batch, length, 3, 2, 8).permute(2, 0, 3, 1, 4)
        query, key, value = projected[0], projected[1], projected[2]
        places = torch.arange(length)
        distance = places[:, None] - places[None, :]
        slopes = torch.tensor(self.slopes)[:, None, None]
        scores = query @ key.transpose(-1, -2) - slopes * distance.abs().to(x.dtype)
        seen = mask[:, None, None, :] & (distance > -1 - self.ahead)
        weights = scores.masked_fill(~seen, -1e9).softmax(-1)
        return self.output((weights @ value).transpose(1, 2).reshape(batch, length, 16))


@dataclass(frozen=True)
class Exchange:
    """A module, another one whose file is taken for its own, and what must be named."""

    reference: Callable[[], nn.Module]
    other: Callable[[], nn.Module]
    operator: str
    code: str


def _linears(reference: Function, other: Function, operator: str, code: str) -> Exchange:
    return Exchange(
        lambda: BetweenLinears(reference), lambda: BetweenLinears(other), operator, code
    )


EXCHANGES = {
    "sorted the other way": _linears(
        lambda y: y.sort(-1).values,
        lambda y: y.sort(-1, descending=True).values,
        "TopK",
        "attribute",
    ),
    "an operation too many": _linears(
        lambda y: y.cumsum(-1), lambda y: y.cumsum(-1) - y, "Sub", "attribute"
    ),
    "one place too far ahead": Exchange(
        CausalAttention, lambda: CausalAttention(ahead=1), "Greater", "comparison"
    ),
    "slopes of the other head": Exchange(
        CausalAttention, lambda: CausalAttention(slopes=(0.25, 0.5)), "Mul", "weights"
    ),
}


def _inputs(module: nn.Module) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(5)
    if isinstance(module, BetweenLinears):
        return (torch.randn(4, 8, generator=generator),)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, 6:] = False
    return torch.randn(2, 9, 16, generator=generator), mask


@pytest.mark.parametrize("name", EXCHANGES)
def test_the_node_is_first_and_its_change_is_proven(name: str, tmp_path: Path) -> None:
    exchange = EXCHANGES[name]
    module = exchange.reference().eval()
    inputs = _inputs(module)
    shapes = tuple(dict.fromkeys(range(min(value.dim(), 2)), DYNAMIC) for value in inputs)
    if len(inputs) == 1:
        shapes = ({0: DYNAMIC},)
    file = tmp_path / "other.onnx"
    torch.onnx.export(exchange.other().eval(), inputs, file, dynamic_shapes=shapes, verbose=False)

    proof = onnxproof.verify(module, file, inputs, dynamic_shapes=shapes)

    assert proof.verdict == "diverged"
    assert proof.location.suspects[0].op_type == exchange.operator
    assert [(cause.code, cause.proven) for cause in proof.causes][:1] == [(exchange.code, True)]
