"""`logcumsumexp` is exported with the maximum of the whole row: entries 104 below it become -inf."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="audio",
    about="running log-evidence over time; early frames far below the final score turn into -inf",
    cause="precision",
    also=("nan-handling",),
    stage="export",
    native=True,
)


class Evidence(nn.Module):
    def forward(self, log_score: Tensor) -> Tensor:
        return torch.logcumsumexp(log_score, dim=1)


class StepwiseEvidence(nn.Module):
    def forward(self, log_score: Tensor) -> Tensor:
        total = log_score[:, 0]
        steps = [total]
        for step in range(1, 8):
            high = torch.maximum(total, log_score[:, step])
            total = high + torch.log(torch.exp(total - high) + torch.exp(log_score[:, step] - high))
            steps.append(total)
        return torch.stack(steps, 1)


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = Evidence().eval()
    example = (torch.randn(2, 8, generator=generator),)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(StepwiseEvidence().eval(), example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "ReduceMax", "Exp", "Log")]
    trigger = (torch.randn(2, 8, generator=generator) + torch.linspace(-300, 0, 8),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
