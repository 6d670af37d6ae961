"""Modules that somebody wrote again a little differently: the wrong one is exported, the right one is the reference.

python -m bench.rewritten                      # every pair
python -m bench.rewritten --only groups        # some of them

Each pair shares its weights. A row says whether the file was caught, whether the node named first is of the operators that were
written otherwise, and whether the first cause is one that is true of it; `WRONG AND PROVEN` is the worst that can happen.
The right module's own export must be called faithful.
"""

import argparse
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.corpus import export, give_weights

Step = Callable[..., Tensor]


class Net(nn.Module):
    """A layer, the step that is written in two ways, and a layer behind it; `parts` are what the step has learned."""

    def __init__(self, step: Step, parts: nn.Module, before: nn.Module, after: nn.Module) -> None:
        super().__init__()
        self.before, self.parts, self.after = before, parts, after
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.step(self.parts, self.before(x))
        answer: Tensor = self.after(hidden)
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One step in two ways, and what is true of the difference."""

    name: str
    right: Step
    wrong: Step
    codes: tuple[str, ...]
    operators: tuple[str, ...]
    """Any node of these, or whose name holds one of them in lower case, is rightly named first."""
    parts: Callable[[], nn.Module] = nn.Identity
    image: bool = False
    width: int = 12

    def build(self, step: Step) -> nn.Module:
        """The network with one of the two steps; the weights are those of the seed."""
        before: nn.Module = nn.Linear(12, 12)
        after: nn.Module = nn.Linear(self.width, 5)
        if self.image:
            before, after = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(self.width, 4, 1)
        return give_weights(Net(step, self.parts(), before, after), 7)

    def inputs(self) -> tuple[Tensor, ...]:
        """An example: two images, or two sequences of seven."""
        shape = (2, 3, 8, 8) if self.image else (2, 7, 12)
        return (torch.randn(shape, generator=torch.Generator().manual_seed(3)),)


def _layer_norm(x: Tensor, axes: Sequence[int], eps: float, *, outside: bool = False) -> Tensor:
    centred = x - x.mean(list(axes), keepdim=True)
    variance = (centred * centred).mean(list(axes), keepdim=True)
    if outside:
        return centred / (variance.sqrt() + eps)
    return centred / (variance + eps).sqrt()


def _attend(parts: nn.Module, x: Tensor, *, scale_mask: bool) -> Tensor:
    hidden = torch.ones(x.shape[1], x.shape[1]).triu(1) * -4.0
    scores = x @ x.transpose(1, 2)
    if scale_mask:
        weights = ((scores + hidden) / math.sqrt(12)).softmax(-1)
    else:
        weights = (scores / math.sqrt(12) + hidden).softmax(-1)
    return weights @ x


def _lstm(parts: Any, x: Tensor, order: tuple[int, int, int, int]) -> Tensor:
    """One step of an LSTM from a state of zeros, gates by their place."""
    gates = parts(x).chunk(4, -1)
    first, second, third, _ = (gates[place] for place in order)
    return torch.sigmoid(third) * torch.tanh(torch.sigmoid(first) * torch.tanh(second))


def _quantized(x: Tensor, zero_point: int) -> Tensor:
    """Eight bits and back; the wrong one has the zero point of another range."""
    steps = (x / 0.05 + 128).round().clamp(0, 255)
    return (steps - zero_point) * 0.05


def _table(parts: Any, x: Tensor, indices: Tensor) -> Tensor:
    rows: Tensor = parts(indices)
    return x + rows


PAIRS = (
    Pair(
        name="groups",
        right=lambda parts, x: functional.group_norm(x, 4),
        wrong=lambda parts, x: functional.group_norm(x, 3),
        codes=("attribute", "axis-order"),
        operators=("GroupNormalization", "InstanceNormalization", "Reshape", "group_norm"),
        image=True,
    ),
    Pair(
        name="einsum-transposed",
        right=lambda parts, x: torch.einsum("bij,jk->bik", x, parts.weight),
        wrong=lambda parts, x: torch.einsum("bij,kj->bik", x, parts.weight),
        codes=("axis-order", "weight-layout", "weights", "missing-op"),
        operators=("MatMul", "Transpose", "Einsum", "Gemm"),
        parts=lambda: nn.Linear(12, 12),
    ),
    Pair(
        name="bucketize-side",
        right=lambda parts, x: x + torch.bucketize((2 * x).round() / 2, torch.arange(-2.0, 3)),
        wrong=lambda parts, x: (
            x + torch.bucketize((2 * x).round() / 2, torch.arange(-2.0, 3), right=True)
        ),
        codes=("comparison", "attribute"),
        operators=("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "ReduceSum", "bucketize"),
    ),
    Pair(
        name="cumsum-exclusive",
        right=lambda parts, x: x.cumsum(1),
        wrong=lambda parts, x: x.cumsum(1) - x,
        codes=("attribute", "mutation", "missing-op"),
        operators=("CumSum", "Sub"),
    ),
    Pair(
        name="interpolate-antialias",
        right=lambda parts, x: functional.interpolate(x, size=(4, 4), mode="bilinear"),
        wrong=lambda parts, x: functional.interpolate(
            x, size=(4, 4), mode="bilinear", antialias=True
        ),
        codes=("attribute",),
        operators=("Resize",),
        image=True,
    ),
    Pair(
        name="epsilon-outside-root",
        right=lambda parts, x: _layer_norm(x * 0.05, (-1,), 1e-2),
        wrong=lambda parts, x: _layer_norm(x * 0.05, (-1,), 1e-2, outside=True),
        codes=("axis-order", "attribute", "mutation", "missing-op"),
        operators=("Add", "Sqrt", "Div"),
    ),
    Pair(
        name="softplus-threshold",
        right=lambda parts, x: functional.softplus(x, beta=1, threshold=20),
        wrong=lambda parts, x: functional.softplus(x, beta=1, threshold=1),
        codes=("attribute",),
        operators=("Softplus", "Where", "Greater", "softplus"),
    ),
    Pair(
        name="lstm-gates",
        right=lambda parts, x: _lstm(parts, x, (0, 2, 3, 1)),
        wrong=lambda parts, x: _lstm(parts, x, (0, 3, 2, 1)),
        codes=("weight-layout", "axis-order", "weights"),
        operators=("Split", "Sigmoid", "Tanh", "Slice"),
        parts=lambda: nn.Linear(12, 48),
    ),
    Pair(
        name="padding-mode",
        right=lambda parts, x: parts(functional.pad(x, (1, 1, 1, 1), mode="reflect")),
        wrong=lambda parts, x: parts(functional.pad(x, (1, 1, 1, 1), mode="replicate")),
        codes=("attribute",),
        operators=("Pad",),
        parts=lambda: nn.Conv2d(12, 12, 3),
        image=True,
    ),
    Pair(
        name="scale-after-mask",
        right=lambda parts, x: _attend(parts, x, scale_mask=False),
        wrong=lambda parts, x: _attend(parts, x, scale_mask=True),
        codes=("axis-order", "masking", "attribute", "mutation"),
        operators=("Add", "Div", "Mul", "Softmax"),
    ),
    Pair(
        name="round-half-away",
        right=lambda parts, x: (2 * (4 * x).round() / 4).round(),
        wrong=lambda parts, x: (2 * (4 * x).round() / 4 + 0.5).floor(),
        codes=("rounding",),
        operators=("Floor", "Round", "Add"),
    ),
    Pair(
        name="integer-division",
        right=lambda parts, x: (x * 4).long().div(3, rounding_mode="floor").float(),
        wrong=lambda parts, x: (x * 4).long().div(3, rounding_mode="trunc").float(),
        codes=("rounding", "attribute", "missing-op"),
        operators=("Div", "Sub", "Where", "Mod", "And", "Floor"),
    ),
    Pair(
        name="clamp-order",
        right=lambda parts, x: (x * 2).clamp(-1, 1),
        wrong=lambda parts, x: x.clamp(-1, 1) * 2,
        codes=("clipping", "axis-order", "mutation", "missing-op"),
        operators=("Clip", "Mul", "Min", "Max"),
    ),
    Pair(
        name="log1p-as-log",
        right=lambda parts, x: torch.log1p(x.abs()),
        wrong=lambda parts, x: torch.log(x.abs() + 1e-3),
        codes=("attribute", "missing-op"),
        operators=("Log", "Add"),
    ),
    Pair(
        name="norm-axis",
        right=lambda parts, x: _layer_norm(x, (-1,), 1e-5),
        wrong=lambda parts, x: _layer_norm(x, (1,), 1e-5),
        codes=("attribute", "axis-order"),
        operators=("ReduceMean",),
    ),
    Pair(
        name="zero-point",
        right=lambda parts, x: _quantized(x, 128),
        wrong=lambda parts, x: _quantized(x, 127),
        codes=("attribute", "quant-scheme", "calibration"),
        operators=("Sub", "Mul"),
    ),
    Pair(
        name="unbiased-variance",
        right=lambda parts, x: x / x.std(-1, keepdim=True),
        wrong=lambda parts, x: x / x.std(-1, keepdim=True, correction=0),
        codes=("attribute", "missing-op"),
        operators=("Div", "Sqrt", "ReduceMean", "Mul", "ReduceSum"),
    ),
    Pair(
        name="rows-from-one",
        right=lambda parts, x: _table(parts, x, torch.arange(x.shape[1])),
        wrong=lambda parts, x: _table(parts, x, torch.arange(x.shape[1]) + 1),
        codes=("position", "attribute"),
        operators=("Add", "Gather", "Range"),
        parts=lambda: nn.Embedding(64, 12),
    ),
    Pair(
        name="max-for-logsumexp",
        right=lambda parts, x: x - torch.logsumexp(x, -1, keepdim=True),
        wrong=lambda parts, x: x - x.amax(-1, keepdim=True),
        codes=("attribute", "missing-op"),
        operators=("ReduceMax", "Sub", "ReduceLogSumExp"),
    ),
    Pair(
        name="gelu-form",
        right=lambda parts, x: functional.gelu(x),
        wrong=lambda parts, x: x * torch.sigmoid(1.702 * x),
        codes=("attribute",),
        operators=("Mul", "Sigmoid"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What onnxproof says of one pair."""

    name: str
    verdict: str
    named: str
    node_right: bool
    causes: tuple[tuple[str, bool, str], ...]
    codes: tuple[str, ...]

    @property
    def standing(self) -> str:
        """What the first cause is worth."""
        if any(proven and code not in self.codes for code, proven, _ in self.causes):
            return "WRONG AND PROVEN"
        if not self.causes:
            return "no cause"
        code, proven, _ = self.causes[0]
        return (
            f"{'right' if code in self.codes else 'wrong'} and {'proven' if proven else 'likely'}"
        )


def verify(pair: Pair, folder: Path, *, healthy: bool, budget_s: float) -> Row:
    """Export one of the two, and verify it against the right one."""
    import onnx

    import onnxproof

    step = pair.right if healthy else pair.wrong
    shapes = ({0: "batch"},) if pair.image else ({0: "batch", 1: "length"},)
    path = folder / f"{pair.name}-{'right' if healthy else 'wrong'}.onnx"
    export(pair.build(step), pair.inputs(), path, shapes)
    proof = onnxproof.verify(
        pair.build(pair.right), path, pair.inputs(), dynamic_shapes=shapes, budget_s=budget_s
    )
    nodes = proof.location.nodes if proof.location is not None else ()
    op_types = {node.name: node.op_type for node in onnx.load(path).graph.node}
    first = nodes[0] if nodes else ""
    return Row(
        name=pair.name,
        verdict=proof.verdict.value,
        named=f"{first} {op_types.get(first, '')}",
        node_right=op_types.get(first) in pair.operators
        or any(word in first for word in pair.operators if word.islower()),
        causes=tuple((cause.code, cause.proven, cause.evidence) for cause in proof.causes),
        codes=pair.codes,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each pair; the exit code says whether a right file was alarmed, or a wrong cause proven."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="pairs whose name holds this")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for a verification")
    parser.add_argument("--twins", action="store_true", help="also the right module's own export")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        for pair in PAIRS:
            if options.only not in pair.name:
                continue
            row = verify(pair, Path(name), healthy=False, budget_s=options.budget)
            mark = "node right" if row.node_right else "NODE WRONG"
            print(
                f"{row.name:24s} {row.verdict:9s} {mark}: {row.named}; {row.standing}", flush=True
            )
            for code, proven, evidence in row.causes[:2]:
                print(f"    {code} {'proven' if proven else 'likely'}: {evidence}", flush=True)
            bad += row.standing == "WRONG AND PROVEN"
            if options.twins:
                twin = verify(pair, Path(name), healthy=True, budget_s=options.budget)
                bad += twin.verdict != "faithful"
                print(f"    twin: {twin.verdict}", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main())
