"""`logaddexp` becomes Log(Exp(a) + Exp(b)) without the maximum taken out: inf above 88, -inf below -104."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="audio",
    about="CTC-like forward recursion over log scores; torch.logaddexp overflows in the dynamo export",
    cause="precision",
    stage="export",
    native=True,
)


class Forward(nn.Module):
    """One alpha recursion of a two-state model over a fixed number of frames."""

    def forward(self, log_scores: Tensor) -> Tensor:
        stay, move = log_scores[:, 0, 0], log_scores[:, 0, 1]
        for step in range(1, 6):
            stay, move = (
                stay + log_scores[:, step, 0],
                torch.logaddexp(stay, move) + log_scores[:, step, 1],
            )
        return torch.logaddexp(stay, move)


class StableForward(nn.Module):
    def forward(self, log_scores: Tensor) -> Tensor:
        stay, move = log_scores[:, 0, 0], log_scores[:, 0, 1]
        for step in range(1, 6):
            stay, move = (
                stay + log_scores[:, step, 0],
                self.add(stay, move) + log_scores[:, step, 1],
            )
        return self.add(stay, move)

    @staticmethod
    def add(a: Tensor, b: Tensor) -> Tensor:
        return torch.maximum(a, b) + torch.log(1 + torch.exp(-torch.abs(a - b)))


def build(folder: Path) -> Built:
    model = Forward().eval()
    example = (torch.randn(2, 6, 2, generator=torch.Generator().manual_seed(1)),)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(StableForward().eval(), example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Log", "Exp")]
    trigger = (torch.randn(2, 6, 2, generator=torch.Generator().manual_seed(2)) * 5 - 40,)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
