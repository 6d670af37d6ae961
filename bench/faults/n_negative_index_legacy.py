"""`x[rows, columns]` of the legacy exporter flattens both indices into one; a negative column then reads the row before."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="operator",
    about="picking the last valid step by x[arange, length - 1]; length 0 means -1, which reads another row",
    cause="missing-op",
    stage="export",
    native=True,
)


class LastStep(nn.Module):
    def forward(self, x: Tensor, length: Tensor) -> Tensor:
        return x[torch.arange(x.shape[0]), length - 1] * 2.0


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = LastStep().eval()
    example = (torch.randn(3, 5, generator=generator), torch.tensor([5, 2, 4]))
    shapes = None
    faulty = export(model, example, folder / "faulty.onnx", shapes, dynamo=False)
    correct = export(model, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Gather")][-1:]
    trigger = (torch.randn(3, 5, generator=generator), torch.tensor([3, 0, 0]))
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
